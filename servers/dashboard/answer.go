package dashboard

import (
	"encoding/json"
	"net/http"
)

// answerJSON answers with a value.
func answerJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(text) // a viewer that has gone needs no answer
}

// answerError answers with what is wrong.
func answerError(w http.ResponseWriter, status int, text string) {
	answerJSON(w, status, map[string]string{"error": text})
}

// reader serves those who may read.
func (g *guard) reader(serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a := g.accessOf(r); !a.Read {
			w.Header().Set("WWW-Authenticate", `Bearer realm="dashboard"`)
			w.Header().Set("Connection", "close") // who may not look holds no connection
			answerError(w, a.refusal(), languageOf(r).word(a.why))
			return
		}
		serve(w, r)
	})
}
