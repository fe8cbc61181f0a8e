// Calls a model with the SDK of OpenAI, at $OPENAI_BASE_URL.
import OpenAI from 'openai';
import { run, say } from './stories.mjs';

const { TIMEOUT, RETRIES } = process.env;

const client = new OpenAI({
  ...(TIMEOUT && { timeout: TIMEOUT * 1000 }),
  ...(RETRIES && { maxRetries: Number(RETRIES) }),
});
const question = { model: 'm', messages: [{ role: 'user', content: 'Hello' }] };

async function call() {
  try {
    const { data, response } = await client.chat.completions.create(question).withResponse();
    say({ status: response.status, answer: data, timing: response.headers.get('Server-Timing') });
  } catch (e) {
    say({
      error: e.constructor.name, message: e.message, status: e.status, answer: e.error,
      retryAfter: e.headers?.get('Retry-After'), via: e.headers?.get('Via'),
    });
  }
}

async function* stream() {
  for await (const chunk of await client.chat.completions.create({ ...question, stream: true })) {
    yield chunk.choices[0].delta.content;
  }
}

await run({ call, stream, defaults: { timeout: client.timeout / 1000, retries: client.maxRetries } });
