// Renders pages out of components to HTML, again and again: `node render.js PAGES`. Each page has its own data, all of
// which stay alive, as in a server with a cache. Prints the length of what was rendered and a checksum.
'use strict';

const pages = Number(process.argv[2] || 400);
if (!Number.isInteger(pages) || pages < 1) {
  console.error(`render.js ${process.argv[2]}: expected a number of pages`);
  process.exit(2);
}

let state = 12345;
function random(below) {
  state = (Math.imul(state, 1103515245) + 12345) >>> 0;
  return (state >>> 8) % below;
}

const letters = 'abcdefghijklmnopqrstuvwxyz&<>"';
function word() {
  let text = '';
  for (let n = 3 + random(8); n > 0; n--) text += letters[random(letters.length)];
  return text;
}

const signs = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escape = (text) => text.replace(/[&<>"]/g, (sign) => signs[sign]);

// A component makes a tree of elements out of data; the tree is turned into text when all of it is there.
const element = (name, attributes, ...children) => ({ name, attributes, children: children.flat() });

function Item({ item }) {
  return element('li', { class: item.stock ? 'in' : 'out', 'data-id': String(item.id) },
    element('h3', {}, item.title),
    element('p', {}, item.words.join(' ')),
    item.tags.map((tag) => element('span', { class: 'tag' }, tag)),
    element('b', {}, (item.price / 100).toFixed(2)));
}

function Page({ data }) {
  const sorted = [...data.items].sort((a, b) => a.price - b.price || a.id - b.id);
  return element('html', { lang: 'en' },
    element('head', {}, element('title', {}, data.title)),
    element('body', {}, element('h1', {}, data.title),
      element('ul', {}, sorted.map((item) => element(Item, { item })))));
}

function render(node) {
  if (typeof node === 'string') return escape(node);
  if (typeof node.name === 'function') return render(node.name(node.attributes));
  let text = '<' + node.name;
  for (const [name, value] of Object.entries(node.attributes)) text += ` ${name}="${escape(value)}"`;
  return text + '>' + node.children.map(render).join('') + `</${node.name}>`;
}

function data(id) {
  const items = [];
  for (let n = 0; n < 120; n++) {
    items.push({
      id: id * 1000 + n, title: word(), price: 100 + random(100000), stock: random(3) > 0,
      words: Array.from({ length: 30 }, word), tags: Array.from({ length: random(5) }, word),
    });
  }
  return { title: word() + ' ' + word(), items };
}

const cache = [];
let length = 0;
let checksum = 0;
for (let page = 0; page < pages; page++) {
  cache.push(data(page));
  // The newest page, and two that were there.
  for (const chosen of [page, random(page + 1), random(page + 1)]) {
    const text = render(Page({ data: cache[chosen] }));
    length += text.length;
    for (let at = 0; at < text.length; at += 97) checksum = (Math.imul(checksum, 31) + text.charCodeAt(at)) >>> 0;
  }
}
console.log(`${pages} pages, ${length} characters, checksum ${checksum.toString(16)}`);
