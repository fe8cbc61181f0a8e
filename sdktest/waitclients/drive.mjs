// Does work under a permit: drive.mjs CLIENTS POLICY KEY WAIT URL [settle=N] [penalize=N] [fail].
const [clients, policy, key, wait, url, ...orders] = process.argv.slice(2)
const {acquire} = await import(`${clients}/throttle-client.mjs`)

let permit
try {
	permit = await acquire([{policy, key}], {wait: Number(wait)})
} catch (error) {
	console.error(error.message)
	process.exit(error.name === 'Refused' ? 75 : 1)
}
try {
	await (await fetch(url)).text()
	for (const order of orders) {
		const [name, value] = order.split('=')
		if (name === 'fail') throw new Error('the work has failed')
		await permit[name](Number(value))
	}
} catch {
	process.exitCode = 3
} finally {
	await permit.release()
}
