// VitePress' configuration. build.mjs passes in SITE what depends on the version that is built.

import { anchorOf, repository } from '../pages.mjs'

const site = JSON.parse(process.env.SITE)

// words splits a text for the search: Latin words, and each pair of Chinese characters, because
// Chinese has no spaces between words. The browser runs it, too, so it uses nothing from outside.
function words(text) {
  return text.toLowerCase().split(/[\s\p{P}\p{S}]+/u).flatMap((word) => {
    const han = word.match(/\p{Script=Han}+/gu)
    if (!han) return [word]
    return [word.replace(/\p{Script=Han}+/gu, ' ').split(' '), han.flatMap((run) =>
      run.length === 1 ? [run] : [...run].slice(1).map((c, i) => [...run][i] + c))].flat(2)
  }).filter(Boolean)
}

const versions = {
  text: site.version,
  items: site.versions.map(({ name, path }) => ({ component: 'VersionLink', props: { name, href: site.home + path } })),
}

// Three bars below a line: calls that stay under a limit.
const icon = 'data:image/svg+xml,' + encodeURIComponent(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="#3451b2">
<rect x="1" y="2" width="14" height="1.5"/><rect x="2" y="8" width="3" height="6"/><rect x="6.5" y="5" width="3" height="9"/><rect x="11" y="6" width="3" height="8"/></svg>`)

export default {
  base: site.base,
  title: 'throttle',
  description: 'Stay under third-party API rate limits, however many pods you run.',
  cleanUrls: false, // any server of files serves the site
  head: [['link', { rel: 'icon', href: icon }]],
  lastUpdated: false,
  markdown: {
    anchor: { slugify: anchorOf },
    config(md) {
      const fence = md.renderer.rules.fence
      md.renderer.rules.fence = (tokens, i, ...rest) =>
        tokens[i].info.trim() === 'mermaid' ? `<Diagram text="${encodeURIComponent(tokens[i].content)}" />` : fence(tokens, i, ...rest)
    },
  },
  locales: {
    root: { label: 'English', lang: 'en' },
    zh: {
      label: '简体中文',
      lang: 'zh-CN',
      description: '不管部署多少个 Pod，加起来都不超过对方接口的限额。',
      themeConfig: {
        nav: [{ text: '快速开始', link: '/zh/start/quickstart' }, { text: 'API', link: 'https://pkg.go.dev/github.com/fleetthrottle/throttle' }, versions],
        sidebar: site.sidebars.zh,
        outline: { label: '本页目录', level: [2, 3] },
        docFooter: { prev: '上一页', next: '下一页' },
        darkModeSwitchLabel: '外观',
        sidebarMenuLabel: '目录',
        returnToTopLabel: '回到顶部',
        langMenuLabel: '语言',
      },
    },
  },
  themeConfig: {
    nav: [{ text: 'Tutorial', link: '/start/tutorial' }, { text: 'API', link: 'https://pkg.go.dev/github.com/fleetthrottle/throttle' }, versions],
    sidebar: { '/zh/': site.sidebars.zh, '/': site.sidebars.en },
    outline: { level: [2, 3] },
    i18nRouting: false, // not every page is in both languages
    socialLinks: [{ icon: 'github', link: repository }],
    editLink: { pattern: ({ frontmatter }) => `https://github.com/fleetthrottle/throttle/edit/main/${frontmatter.source}` },
    search: {
      provider: 'local',
      options: {
        miniSearch: { options: { tokenize: words }, searchOptions: { tokenize: words } },
        locales: {
          zh: {
            translations: {
              button: { buttonText: '搜索', buttonAriaLabel: '搜索' },
              modal: {
                noResultsText: '没有找到',
                resetButtonTitle: '清空',
                footer: { selectText: '选择', navigateText: '切换', closeText: '关闭' },
              },
            },
          },
        },
      },
    },
  },
}
