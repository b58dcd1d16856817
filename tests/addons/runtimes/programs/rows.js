const cache = new Map();
class Store { constructor() { this.items = []; } }
const store = new Store();
for (let i = 0; i < 1000; i++) cache.set('key' + i, new ArrayBuffer(40000));
for (let i = 0; i < 300; i++) store.items.push(Buffer.alloc(30000));
globalThis.shared = [];
for (let i = 0; i < 100; i++) shared.push(new Float64Array(3000));
gc(); gc();
function size() { return cache.size + store.items.length; }
setTimeout(() => console.log('ready'), 200);
setInterval(size, 1e6);
