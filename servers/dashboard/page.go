package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// files are the files of the page.
//
//go:embed page
var files embed.FS

var pageTemplate = template.Must(template.New("page.html").ParseFS(files, "page/page.html"))

// A pageView is the data of the template.
type pageView struct {
	Language language
	Title    string
	Words    map[string]string
	Script   string // data for the scripts, as JSON
}

// Word returns a word of the page by its key.
func (p pageView) Word(name string) string { return p.Words[name] }

// scriptView is the data for the scripts.
type scriptView struct {
	Language language          `json:"language"`
	Words    map[string]string `json:"words"`
	Access   access            `json:"access"`
	Why      string            `json:"why"` // why the viewer may not look, or ""
}

// A front serves the page and its files.
type front struct {
	guard *guard
	title string
}

// page serves the page, which holds no data. Everyone gets it, so that an operator can type the token. It keeps a language
// that the URL names in a cookie.
func (f *front) page(w http.ResponseWriter, r *http.Request) {
	lang, rights := languageOf(r), f.guard.accessOf(r)
	script, err := json.Marshal(scriptView{lang, words[lang], rights, lang.word(rights.why)})
	if err != nil {
		http.Error(w, "dashboard: "+err.Error(), http.StatusInternalServerError)
		return
	}

	// Render into memory first, so that a failure still has a proper status.
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, pageView{lang, f.title, words[lang], string(script)}); err != nil {
		http.Error(w, "dashboard: "+err.Error(), http.StatusInternalServerError)
		return
	}

	if r.URL.Query().Get("lang") == string(lang) {
		http.SetCookie(w, &http.Cookie{
			Name: languageCookie, Value: string(lang), MaxAge: int((365 * 24 * time.Hour).Seconds()),
			SameSite: http.SameSiteStrictMode, HttpOnly: true,
		})
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Language", string(lang))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "Accept-Language, Cookie")
	_, _ = w.Write(page.Bytes()) // a viewer that has gone needs no page
}

// kinds are media types by file extension, for machines without a table of
// types.
var kinds = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// file serves a file of the page. The files have no secrets.
func (f *front) file(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	text, err := files.ReadFile(path.Join("page", name))
	kind := kinds[path.Ext(name)]
	if err != nil || kind == "" {
		http.NotFound(w, r)
		return
	}

	// Browsers ask each time, and load the file only if its tag has changed.
	sum := sha256.Sum256(text)
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", `"`+base64.RawURLEncoding.EncodeToString(sum[:12])+`"`)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(text))
}

// A language is a language of the page.
type language string

const (
	english language = "en"
	chinese language = "zh"
)

// wordsText has the words of the page by key, in English and in Chinese.
//
//go:embed words.json
var wordsText []byte

// words are the words of the page by language and key.
var words = readWords(wordsText)

// readWords reads words.json, which has the English and the Chinese word of each key. It panics if the file is malformed.
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

func (l language) word(name string) string { return words[l][name] }

// in returns the sentence in a language.
func (p *phrase) in(l language) string {
	if l == chinese {
		return p.Chinese
	}
	return p.English
}

// languageCookie remembers the language that a viewer chose.
const languageCookie = "throttle-language"

// languageOf returns the language of a viewer: named by the URL, or by the cookie of an earlier choice, or preferred by the
// browser.
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

// preferred returns the language of the page that an Accept-Language header ranks highest, English by default.
func preferred(accept string) language {
	best, most := english, 0.0
	for item := range strings.SplitSeq(accept, ",") {
		name, parameters, _ := strings.Cut(item, ";")
		weight := 1.0
		if q, found := strings.CutPrefix(strings.TrimSpace(parameters), "q="); found {
			// An unreadable weight counts as 0.
			weight, _ = strconv.ParseFloat(q, 64)
		}

		primary, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(name)), "-")
		if l := language(primary); words[l] != nil && weight > most {
			best, most = l, weight
		}
	}

	return best
}
