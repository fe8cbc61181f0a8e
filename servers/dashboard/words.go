package dashboard

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// A language is one that the page speaks.
type language string

const (
	english language = "en"
	chinese language = "zh"
)

// wordsText has the words of the page: by a name, in English and in Chinese.
//
//go:embed words.json
var wordsText []byte

// words are the words of the page by language and name.
var words = readWords(wordsText)

func readWords(text []byte) map[language]map[string]string {
	var all map[string][2]string
	if err := json.Unmarshal(text, &all); err != nil {
		panic("dashboard: words.json: " + err.Error()) // a test reads it
	}
	w := map[language]map[string]string{english: {}, chinese: {}}
	for name, both := range all {
		w[english][name], w[chinese][name] = both[0], both[1]
	}
	return w
}

// word returns a word of the page.
func (l language) word(name string) string { return words[l][name] }

// in returns the sentence in a language.
func (p *phrase) in(l language) string {
	if l == chinese {
		return p.Chinese
	}
	return p.English
}

// languageCookie remembers which language a viewer has chosen.
const languageCookie = "throttle-language"

// languageOf returns the language of a viewer: the one that was chosen, or that of the browser.
func languageOf(r *http.Request) language {
	chosen := r.URL.Query().Get("lang")
	if c, err := r.Cookie(languageCookie); err == nil && chosen == "" {
		chosen = c.Value
	}
	if l := language(chosen); words[l] != nil {
		return l
	}
	return preferred(r.Header.Get("Accept-Language"))
}

// preferred returns which of the languages a browser likes best, English if none is named.
func preferred(accept string) language {
	best, most := english, 0.0
	for item := range strings.SplitSeq(accept, ",") {
		name, parameters, _ := strings.Cut(item, ";")
		weight := 1.0
		if q, found := strings.CutPrefix(strings.TrimSpace(parameters), "q="); found {
			weight, _ = strconv.ParseFloat(q, 64) // what is no number is not wished for
		}

		primary, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(name)), "-")
		if l := language(primary); words[l] != nil && weight > most {
			best, most = l, weight
		}
	}

	return best
}
