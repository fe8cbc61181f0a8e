// Permits of throttle's waiting API, for Node 20 and later. Nothing has to be installed.
//
//	const permit = await acquire([{policy: 'shop', key: 'acme'}], {wait: 60})
//	try {
//		const response = await fetch('https://acme.example.com/orders')
//		if (response.status === 429) await permit.penalize(30)
//	} finally {
//		await permit.release()
//	}
//
// From Node 24 on, "await using permit = await acquire(…)" releases it.
import {setTimeout as sleep} from 'node:timers/promises'

const url = process.env.THROTTLE_URL ?? 'http://127.0.0.1:7070'

/** The work may not start. problem says why. */
export class Refused extends Error {
	constructor(problem, retryAfter) {
		super(problem.detail)
		Object.assign(this, {name: 'Refused', problem, retryAfter})
	}
}

/** The work may start later: keep place with it, and come again after retryAfter seconds; see docs/use/jobs.md. */
export class Later extends Error {
	constructor({place, retryAfter}) {
		super(`come again in ${retryAfter} s`)
		Object.assign(this, {name: 'Later', place, retryAfter})
	}
}

async function post(path, body, timeout = 20, headers = {}) {
	if (process.env.THROTTLE_TOKEN) headers['Proxy-Authorization'] = `Bearer ${process.env.THROTTLE_TOKEN}`
	headers['Content-Type'] = 'application/json'
	const signal = AbortSignal.timeout(Math.ceil(timeout * 1000))
	const response = await fetch(`${url}/v1/${path}`, {method: 'POST', body: JSON.stringify(body), headers, signal}).catch(cause => {
		throw new Error(`no throttle proxy answers at ${url}, or it wants another THROTTLE_TOKEN`, {cause}) // fetch hides an answer 407
	})
	const text = await response.text()
	if (!response.ok) throw new Refused(JSON.parse(text), Number(response.headers.get('Retry-After') ?? Infinity))
	return text && JSON.parse(text)
}

class Permit {
	constructor(answer) { Object.assign(this, answer) } // permit, waited, lifetime
	settle(cost, budget) { return post('settle', {permit: this.permit, cost, ...budget}) }
	penalize(duration, policies) { return post('penalize', {permit: this.permit, duration, policies}) }
	release() { // what fails leaves a permit that expires, or has expired: then its lifetime was too short
		return post('release', {permit: this.permit}).catch(error => process.emitWarning(`the permit was not released: ${error.message}`))
	}
	[Symbol.asyncDispose]() { return this.release() }
}

export async function acquire(demands, {wait = 60, ...options} = {}) { // options: priority, lifetime and place. With place '' or a Later's place it throws Later
	const end = performance.now() / 1000 + wait, key = crypto.randomUUID()
	for (;;) {
		const left = Math.max(0, end - performance.now() / 1000)
		try {
			const answer = await post('acquire', {demands, wait: left, ...options}, left + 20, {'Idempotency-Key': key})
			if (answer.place) throw new Later(answer)
			return new Permit(answer)
		} catch (error) { // without an answer the same key is sent again: nothing is charged twice
			const pause = error instanceof Refused ? error.retryAfter : 0.5
			if (error instanceof Later || performance.now() / 1000 + pause > end) throw error
			await sleep(pause * 1000)
		}
	}
}
