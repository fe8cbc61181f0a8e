// Builds the site: the working tree at its root, and each released version below its tag.
//
//     node build.mjs [--base /throttle/] [--out DIR]
//
// The site is plain files: any server of files can serve it. A dead link, a missing heading or a
// missing picture fails the build.

import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { build } from 'vitepress'
import { addressOf, collect, repository, sidebars } from './pages.mjs'

const here = dirname(fileURLToPath(import.meta.url))
const root = resolve(here, '../..')

const { values } = parseArgs({ options: { base: { type: 'string', default: '/' }, out: { type: 'string', default: join(here, 'dist') } } })
const base = values.base.endsWith('/') ? values.base : values.base + '/'
const out = resolve(values.out)

const git = (...args) => execFileSync('git', ['-C', root, ...args], { encoding: 'utf8' }).trim()

// Versions before the site's first tag have no docs/README.md that it can read.
const tags = git('tag', '--list', 'v*', '--sort=-version:refname').split('\n').filter(Boolean)
const versions = [{ name: 'main', root, path: '' }, ...tags.map((name) => ({ name, path: name + '/' }))]

// Folders for sources are made here, because VitePress looks for its packages above them.
const work = join(here, '.work')
rmSync(work, { recursive: true, force: true })
rmSync(out, { recursive: true, force: true })
mkdirSync(work)

for (const version of versions) {
  version.root ??= checkout(version.name)

  const source = mkdtempSync(join(work, 'site-'))
  const site = collect(version.root, source, version.name)
  process.env.SITE = JSON.stringify({
    base: base + version.path,
    home: base,
    version: version.name,
    versions: versions.map(({ name, path }) => ({ name, path })),
    sidebars: sidebars(version.root, site),
  })
  symlinkSync(join(here, 'config'), join(source, '.vitepress'))
  await build(source, { outDir: join(out, version.path) })
}

const faults = [...check(out, base), ...runbooks(out)]
rmSync(work, { recursive: true, force: true })
if (faults.length) {
  console.error(faults.join('\n'))
  process.exit(1)
}
console.log(`the site is in ${out}`)

// checkout returns a folder with the files of a tag. It is a repository, because pages are found by git.
function checkout(tag) {
  const folder = mkdtempSync(join(work, 'tag-'))
  execFileSync('git', ['clone', '--quiet', '--no-local', '--depth', '1', '--branch', tag, 'file://' + root, folder])
  return folder
}

// check returns the links, anchors and pictures of built pages that lead nowhere.
function check(folder, base) {
  const pages = new Map()
  for (const name of readdirSync(folder, { recursive: true })) {
    if (name.endsWith('.html')) {
      const text = readFileSync(join(folder, name), 'utf8')
      pages.set('/' + name, { text, ids: new Set([...text.matchAll(/\bid="([^"]+)"/g)].map((m) => m[1])) })
    }
  }

  const faults = []
  for (const [page, { text }] of pages) {
    const at = new URL('http://site' + base.slice(0, -1) + page)
    for (const [, link] of text.matchAll(/\b(?:href|src)="([^"]+)"/g)) {
      const to = new URL(link.replaceAll('&amp;', '&'), at)
      if (to.host !== 'site') continue
      if (!to.pathname.startsWith(base)) {
        faults.push(`${page}: ${link} is outside of ${base}`)
        continue
      }

      let path = '/' + decodeURIComponent(to.pathname.slice(base.length))
      if (path.endsWith('/')) path += 'index.html'
      const anchor = decodeURIComponent(to.hash.slice(1))
      if (!existsSync(join(folder, path))) faults.push(`${page}: ${link} leads nowhere`)
      else if (anchor && pages.has(path) && !pages.get(path).ids.has(anchor)) faults.push(`${page}: ${link} names no heading`)
    }
  }
  return faults
}

// runbooks returns the addresses of runbooks in alerts.yaml whose page or heading the site does not have.
function runbooks(folder) {
  const alerts = readFileSync(join(root, 'adapters/promthrottle/alerts.yaml'), 'utf8')
  const found = [...alerts.matchAll(/runbook_url: '([^']+)'/g)].map((m) => m[1])
  if (found.length === 0) return ['alerts.yaml names no runbook']

  const blob = repository + '/blob/main/'
  return found.filter((url) => {
    const [page, anchor] = url.slice(blob.length).split('#')
    const file = join(folder, addressOf(page).replace(/\.md$/, '.html'))
    return !url.startsWith(blob) || !existsSync(file) || !readFileSync(file, 'utf8').includes(`id="${anchor}"`)
  }).map((url) => `alerts.yaml: ${url} leads nowhere on the site`)
}
