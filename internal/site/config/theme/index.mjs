import theme from 'vitepress/theme'
import Diagram from './Diagram.vue'
import VersionLink from './VersionLink.vue'
import './site.css'

export default {
  extends: theme,
  enhanceApp({ app }) {
    app.component('Diagram', Diagram)
    app.component('VersionLink', VersionLink)
  },
}
