const v8 = require('v8'), kept = globalThis.kept = [];
for (let i = 0; i < 1500; i++) kept.push(Buffer.allocUnsafeSlow(20000 + i).fill(i & 255));
for (let i = 0; i < 3000; i++) kept.push(new Uint8Array(100 + i % 50).fill(7));
for (let i = 0; i < 300; i++) kept.push(new ArrayBuffer(4096 * (1 + i % 3)));
for (let i = 0; i < 2000; i++) kept.push(Buffer.from('small ' + i));
gc(); gc();
setTimeout(() => {
  const said = {usage: process.memoryUsage(), heap: v8.getHeapStatistics()};
  require('fs').writeFileSync('said', JSON.stringify(said)); console.log('ready'); require('fs').readSync(0, Buffer.alloc(1));
}, 200);
