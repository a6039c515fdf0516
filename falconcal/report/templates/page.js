// Small things that the other scripts share.

function made(kind, properties = {}) {
  return Object.assign(document.createElement(kind), properties);
}

// data that the page carries, or null
function carried(id) {
  const element = document.getElementById(id);
  return element && JSON.parse(element.textContent);
}

// on paper everything is open, and afterwards as it was
let opened = [];
window.addEventListener("beforeprint", () => {
  opened = Array.from(document.querySelectorAll("details:not([open])"));
  opened.forEach((details) => { details.open = true; });
});
window.addEventListener("afterprint", () => opened.forEach((details) => { details.open = false; }));
