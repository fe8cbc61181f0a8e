// Collects the repository's Markdown into a folder that VitePress reads: each page gets the address
// of the site, and each link leads to a page of the site or to the file on GitHub.

import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'

export const repository = 'https://github.com/fleetthrottle/throttle'

// Pages that are not for readers of the site.
const left = /(^|\/)(testdata|vectors|\.github|list)\//

// addressOf returns the path of a page on the site, for its path in the repository.
export function addressOf(page) {
  const moved = {
    'README.md': 'index.md',
    'README.zh-CN.md': 'zh/index.md',
    'docs/README.md': 'pages.md',
    'cmd/throttle/README.md': 'command.md',
    'deploy/README.md': 'deploy.md',
    'internal/lab/benchmarks/README.md': 'benchmarks.md',
  }
  return moved[page] ?? page.replace(/^docs\//, '').replace(/\/README\.md$/, '.md').toLowerCase()
}

// tracked returns the files of the repository at root, with the folders that hold them.
function tracked(root) {
  const files = execFileSync('git', ['-C', root, 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], { encoding: 'utf8', maxBuffer: 1 << 26 })
    .split('\0').filter(Boolean)
  const folders = new Set()
  for (const file of files) {
    for (let folder = posix.dirname(file); folder !== '.'; folder = posix.dirname(folder)) folders.add(folder)
  }
  return { files: new Set(files), folders }
}

// outsideFences applies change to the parts of a page that are no code.
function outsideFences(text, change) {
  return text.split(/(^ *```[\s\S]*?^ *```[^\n]*$|`[^`\n]+`)/m).map((part, i) => (i % 2 ? part : change(part))).join('')
}

// collect writes the pages of the repository at root to the folder to, and returns their addresses.
// ref is the branch or tag that links to GitHub name. A link that leads nowhere is an error.
export function collect(root, to, ref) {
  const { files, folders } = tracked(root)
  const pages = [...files].filter((file) => file.endsWith('.md') && !left.test(file))
  const site = new Map(pages.map((page) => [page, addressOf(page)]))
  const broken = []

  const lead = (page, target) => {
    const [, path, anchor] = target.match(/^([^#]*)(#.*)?$/)
    if (/^[a-z]+:/.test(target) || path === '') return target

    const file = posix.normalize(posix.join(posix.dirname(page), path)).replace(/\/$/, '')
    if (site.has(file)) return '/' + site.get(file).replace(/index\.md$/, '') + (anchor ?? '')
    if (folders.has(file) && site.has(file + '/README.md')) return '/' + site.get(file + '/README.md') + (anchor ?? '')
    if (/\.(svg|png)$/.test(file) && files.has(file)) {
      const copy = join(to, 'public', file)
      mkdirSync(dirname(copy), { recursive: true })
      copyFileSync(join(root, file), copy)
      return '/' + file
    }
    if (files.has(file)) return `${repository}/blob/${ref}/${file}${anchor ?? ''}`
    if (folders.has(file)) return `${repository}/tree/${ref}/${file}`
    broken.push(`${page}: ${target}`)
    return target
  }

  for (const page of pages) {
    const text = outsideFences(readFileSync(join(root, page), 'utf8'), (part) =>
      part.replace(/\]\(([^)\s]+)\)/g, (_, target) => `](${lead(page, target)})`))
    const edited = `---\nsource: ${page}\n---\n\n` + text
    const file = join(to, site.get(page))
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, edited)
  }

  if (broken.length) throw new Error('links that lead nowhere:\n' + broken.join('\n'))
  return site
}

// titleOf returns the first heading of a page.
function titleOf(root, page) {
  return readFileSync(join(root, page), 'utf8').match(/^# (.+)$/m)?.[1].replace(/[`*]/g, '') ?? page
}

// sidebars returns the side navigation in both languages. Its sections are those of docs/README.md,
// which is the one list of pages, and in Chinese the lines of its section; each preset has a page in a
// section of its own.
export function sidebars(root, site) {
  const index = readFileSync(join(root, 'docs/README.md'), 'utf8')
  const section = { en: [], zh: [] }

  const itemsOf = (text) => [...text.matchAll(/\[([^\]]+)\]\(([^)#\s]+)\)/g)].flatMap(([, text, target]) => {
    const page = posix.normalize(posix.join('docs', target))
    if (!site.has(page)) return []
    return [{ text: text[0].toUpperCase() + text.slice(1), link: '/' + site.get(page).replace(/index\.md$/, '').replace(/\.md$/, '') }]
  })

  for (const part of index.split(/^## /m).slice(1)) {
    const [heading, ...lines] = part.split('\n')
    if (/中文/.test(heading)) {
      for (const [, name, rest] of part.matchAll(/^- ([^：]+)：(.*)$/gm)) section.zh.push({ text: name, items: itemsOf(rest) })
      continue
    }

    const items = lines.flatMap((line) => itemsOf(line))
    if (items.length) section.en.push({ text: heading, collapsed: /maintain/i.test(heading), items })
  }

  const presets = [...site.keys()].filter((page) => /^docs\/presets\/[^/]+\.md$/.test(page)).sort()
  section.en.push({
    text: 'Presets',
    collapsed: true,
    items: presets.map((page) => ({ text: titleOf(root, page), link: '/' + site.get(page).replace(/\.md$/, '') })),
  })

  return section
}

// anchorOf returns the id that GitHub gives a heading, so that links to headings work in both places.
export function anchorOf(heading) {
  return heading.trim().toLowerCase().replace(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, '').replace(/ /g, '-')
}
