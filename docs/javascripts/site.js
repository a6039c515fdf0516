// What the theme leaves out for those who use a keyboard or a screen reader.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");

// The theme gives wide tables a frame of their own only when the page has been read.
const reachFrames = () => {
  for (const frame of document.querySelectorAll(".md-typeset__scrollwrap")) {
    frame.tabIndex = frame.scrollWidth > frame.clientWidth ? 0 : -1;
  }
};
addEventListener("load", reachFrames);
addEventListener("resize", reachFrames);
