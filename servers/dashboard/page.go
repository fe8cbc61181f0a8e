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
	"time"
)

// files are what the page is made of.
//
//go:embed page
var files embed.FS

var pageTemplate = template.Must(template.New("page.html").ParseFS(files, "page/page.html"))

// A pageView is what the template is filled with.
type pageView struct {
	Language language
	Title    string
	Words    map[string]string
	Script   string // what scripts are told, as JSON
}

// Word returns a word of the page.
func (p pageView) Word(name string) string { return p.Words[name] }

// scriptView is what the page's scripts are told.
type scriptView struct {
	Language language          `json:"language"`
	Words    map[string]string `json:"words"`
	Access   access            `json:"access"`
	Why      string            `json:"why"` // why the viewer may not read; "": they may
}

// A front serves the page and its files.
type front struct {
	guard *guard
	title string
}

// page answers with the page, which shows nothing by itself. It goes to everybody, so that who has the token can
// type it in.
func (f *front) page(w http.ResponseWriter, r *http.Request) {
	l, a := languageOf(r), f.guard.accessOf(r)
	script, err := json.Marshal(scriptView{l, words[l], a, l.word(a.why)})
	if err != nil {
		http.Error(w, "dashboard: "+err.Error(), http.StatusInternalServerError)
		return
	}

	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, pageView{l, f.title, words[l], string(script)}); err != nil {
		http.Error(w, "dashboard: "+err.Error(), http.StatusInternalServerError)
		return
	}

	if r.URL.Query().Get("lang") == string(l) {
		http.SetCookie(w, &http.Cookie{
			Name: languageCookie, Value: string(l), MaxAge: int((365 * 24 * time.Hour).Seconds()),
			SameSite: http.SameSiteStrictMode, HttpOnly: true,
		})
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Language", string(l))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "Accept-Language, Cookie")
	_, _ = w.Write(page.Bytes()) // a viewer that has gone needs no page
}

// kinds are the files of the page by what they are called, for a machine that has no table of types.
var kinds = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// file answers with a file of the page. They hold nothing that is not in the repository.
func (f *front) file(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	text, err := files.ReadFile(path.Join("page", name))
	kind := kinds[path.Ext(name)]
	if err != nil || kind == "" {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(text)
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", `"`+base64.RawURLEncoding.EncodeToString(sum[:12])+`"`)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(text))
}
