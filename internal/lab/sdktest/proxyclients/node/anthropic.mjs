// Calls a model with the SDK of Anthropic, at $ANTHROPIC_BASE_URL.
import Anthropic from '@anthropic-ai/sdk';
import { run, say } from './stories.mjs';

const { TIMEOUT, RETRIES, SIGNAL } = process.env;

const client = new Anthropic({
  ...(TIMEOUT && { timeout: TIMEOUT * 1000 }),
  ...(RETRIES && { maxRetries: Number(RETRIES) }),
});
const question = { model: 'm', max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }] };

async function call() {
  try {
    const options = { signal: SIGNAL && AbortSignal.timeout(SIGNAL * 1000) };
    const { data, response } = await client.messages.create(question, options).withResponse();
    say({ status: response.status, answer: data, timing: response.headers.get('Server-Timing') });
  } catch (e) {
    say({
      error: e.constructor.name, message: e.message, status: e.status, answer: e.error,
      retryAfter: e.headers?.get('Retry-After'), via: e.headers?.get('Via'),
    });
  }
}

async function* stream() {
  for await (const event of await client.messages.create({ ...question, stream: true })) {
    if (event.type === 'content_block_delta') yield event.delta.text;
  }
}

await run({ call, stream, defaults: { timeout: client.timeout / 1000, retries: client.maxRetries } });
