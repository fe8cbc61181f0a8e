// Sends a call that aws4 signs: PROXY URL SECRET.
import aws4 from 'aws4';
import { ProxyAgent, fetch } from 'undici';

const [proxy, url, secretAccessKey] = process.argv.slice(2);
const { host, pathname } = new URL(url);

const signed = aws4.sign({
  host, path: pathname, method: 'POST', body: JSON.stringify({ model: 'm' }),
  headers: { 'Content-Type': 'application/json' }, service: 'execute-api', region: 'eu-central-1',
}, { accessKeyId: 'id', secretAccessKey });
delete signed.headers['Content-Length'];

const answer = await fetch(url, { ...signed, dispatcher: new ProxyAgent(proxy) });
console.log(answer.status, await answer.text());
