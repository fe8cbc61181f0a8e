package dashboard

import (
	"encoding/json"
	"net/http"
	"strconv"
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

// history answers with all points of a budget.
func (h *Handler) history(w http.ResponseWriter, r *http.Request) {
	points, known := h.sampler.history(r.FormValue("budget"))
	if !known {
		answerError(w, http.StatusNotFound, languageOf(r).word("no such budget"))
		return
	}
	answerJSON(w, http.StatusOK, points)
}

// why answers with the sentence that says why requests wait for a budget, or did at a moment.
func (h *Handler) why(w http.ResponseWriter, r *http.Request) {
	at, err := strconv.ParseInt(r.FormValue("at"), 10, 64)
	if err != nil {
		answerError(w, http.StatusBadRequest, languageOf(r).word("no such moment"))
		return
	}
	moment, sentence, known := h.sampler.why(r.FormValue("budget"), at)
	if !known {
		answerError(w, http.StatusNotFound, languageOf(r).word("no such moment"))
		return
	}
	answerJSON(w, http.StatusOK, map[string]any{"at": moment, "why": sentence.in(languageOf(r))})
}
