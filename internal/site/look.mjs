// Looks at the built site in a browser: no page is wider than a phone or a desk, none has an error in
// its console, the search finds words of both languages, and diagrams are drawn.
//
//     node look.mjs [--out DIR] [--pictures DIR]
//
// CHROMIUM names the browser; by default the first on PATH is used.

import { execFileSync } from 'node:child_process'
import { createServer } from 'node:http'
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import puppeteer from 'puppeteer-core'

const here = dirname(fileURLToPath(import.meta.url))
const { values } = parseArgs({ options: { out: { type: 'string', default: join(here, 'dist') }, pictures: { type: 'string' } } })
const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.png': 'image/png', '.json': 'application/json' }

const server = createServer((request, response) => {
  let path = decodeURIComponent(new URL(request.url, 'http://site').pathname)
  if (path.endsWith('/')) path += 'index.html'

  const file = join(values.out, path)
  if (!existsSync(file)) {
    response.writeHead(404).end()
    return
  }
  response.writeHead(200, { 'content-type': types[extname(file)] ?? 'application/octet-stream' }).end(readFileSync(file))
})
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
const site = `http://127.0.0.1:${server.address().port}`

const browser = await puppeteer.launch({ executablePath: chromium(), args: ['--no-sandbox', '--disable-gpu'] })
const faults = []
let at = ''
try {
  const pages = readdirSync(values.out, { recursive: true }).filter((name) => name.endsWith('.html') && name !== '404.html')
  const page = await browser.newPage()
  page.on('console', (message) => message.type() === 'error' && !foreign(message) && faults.push(`${at}: ${message.text()}`))
  page.on('pageerror', (error) => faults.push(`${at}: ${error.message}`))

  // Pictures of other hosts, badges, are not fetched: this program visits the site alone.
  await page.setRequestInterception(true)
  page.on('request', (request) => (request.url().startsWith(site) || request.url().startsWith('data:') ? request.continue() : request.abort()))

  for (const width of [360, 1440]) {
    await page.setViewport({ width, height: 900 })
    for (const name of pages) {
      at = `${name} at ${width} px`
      await page.goto(`${site}/${name}`, { waitUntil: 'load' })
      const wide = await page.evaluate(() => document.documentElement.scrollWidth)
      if (wide > width) faults.push(`${at}: is ${wide} px wide`)
    }
  }

  at = 'a diagram'
  await page.goto(`${site}/start/how-it-works.html`)
  await page.waitForSelector('.diagram svg', { timeout: 30_000 })

  await finds('/index.html', 'MaxWait')
  await finds('/zh/index.html', '限流')

  if (values.pictures) await take(page)

  async function finds(path, word) {
    at = `a search for ${word}`
    await page.goto(site + path, { waitUntil: 'networkidle0' }) // the button works from then on
    await page.waitForSelector('.DocSearch-Button')
    await page.click('.DocSearch-Button')
    await page.waitForSelector('#localsearch-input')
    await page.type('#localsearch-input', word)
    await page.waitForSelector('.VPLocalSearchBox .result', { timeout: 30_000 })
    await page.keyboard.press('Escape')
  }
} catch (error) {
  faults.push(`${at}: ${error.message}`)
} finally {
  await browser.close()
  server.close()
}

if (faults.length) {
  console.error(faults.join('\n'))
  process.exit(1)
}
console.log('the site is well: 360 and 1440 px, the search, diagrams')

// take writes pictures of pages, for eyes.
async function take(page) {
  mkdirSync(values.pictures, { recursive: true })
  for (const scheme of ['light', 'dark']) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }])
    for (const width of [360, 1440]) {
      await page.setViewport({ width, height: 900 })
      for (const name of ['index', 'start/how-it-works', 'run/stores', 'zh/index', 'zh/start/dingtalk']) {
        await page.goto(`${site}/${name}.html`, { waitUntil: 'networkidle0' })
        await page.screenshot({ path: join(values.pictures, `${name.replaceAll('/', '-')}-${width}-${scheme}.png`) })
      }
    }
  }
}

// foreign says whether a message is about a picture that was not fetched.
function foreign(message) {
  return message.text().includes('ERR_FAILED') && !message.location().url?.startsWith(site)
}

function chromium() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM
  for (const name of ['chromium', 'chromium-browser', 'google-chrome']) {
    try {
      return execFileSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).trim()
    } catch {
      // The next name is tried.
    }
  }
  throw new Error('no chromium: run make browser, or set CHROMIUM')
}
