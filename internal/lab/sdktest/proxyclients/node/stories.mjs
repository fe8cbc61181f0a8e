// What the programs beside this file do, as their arguments say.
export function say(fields) {
  console.log(JSON.stringify(fields));
}

export async function run({ call, stream, defaults }) {
  const [story, n] = process.argv.slice(2);
  if (story === 'calls') {
    for (let i = 0; i < n; i++) await call();
  } else if (story === 'stream') {
    for await (const text of stream()) say({ event: text });
  } else if (story === 'stop') { // in the middle of a stream
    for await (const text of stream()) {
      say({ event: text });
      break;
    }
  } else if (story === 'defaults') {
    say(defaults);
  }
}
