// Does work under a permit: drive.mjs CLIENTS POLICY KEY WAIT URL [place=TEXT] [settle=N] [penalize=N] [fail].
const [clients, policy, key, wait, url, ...orders] = process.argv.slice(2)
const {acquire} = await import(`${clients}/throttle-client.mjs`)

let permit
const places = orders.filter(order => order.startsWith('place='))
const options = places.length ? {place: places[0].slice(6)} : {}
try {
	permit = await acquire([{policy, key}], {wait: Number(wait), ...options})
} catch (error) {
	if (error.name === 'Later') {
		console.log(error.place)
		process.exit(74)
	}
	console.error(error.message)
	process.exit(error.name === 'Refused' ? 75 : 1)
}
try {
	await (await fetch(url)).text()
	for (const order of orders.filter(order => !places.includes(order))) {
		const [name, value] = order.split('=')
		if (name === 'fail') throw new Error('the work has failed')
		await permit[name](Number(value))
	}
} catch {
	process.exitCode = 3
} finally {
	await permit.release()
}
