package dashboard

import (
	"cmp"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

const (
	longestBody   = 8 << 10
	longestName   = 200
	longestReason = 500
)

// An order is what an operator asks for.
type order struct {
	Token  string `json:"token"`  // of a login
	Budget string `json:"budget"` // by its id
	For    int64  `json:"for"`    // of a pause, in milliseconds
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// readOrder reads an order. It answers by itself if there is none.
func readOrder(w http.ResponseWriter, r *http.Request) (o order, ok bool) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		answerError(w, http.StatusUnsupportedMediaType, "Content-Type: application/json is missing")
		return o, false
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, longestBody)).Decode(&o); err != nil {
		answerError(w, http.StatusBadRequest, "the body is no JSON of an order")
		return o, false
	}
	return o, true
}

// tellAccess answers with what the viewer may do.
func (h *Handler) tellAccess(w http.ResponseWriter, r *http.Request) {
	answerJSON(w, http.StatusOK, h.accessOf(r))
}

// takeToken gives who knows the token a cookie that proves it.
func (h *Handler) takeToken(w http.ResponseWriter, r *http.Request) {
	o, ok := readOrder(w, r)
	if !ok {
		return
	}
	if !h.token.is(o.Token) {
		answerError(w, http.StatusUnauthorized, languageOf(r).word("wrong token"))
		return
	}
	until := time.Now().Add(cookieLasts)
	http.SetCookie(w, h.cookie(r, h.token.proof(until), int(cookieLasts.Seconds())))
	r.Header.Set("Authorization", "Bearer "+o.Token)
	answerJSON(w, http.StatusOK, h.accessOf(r))
}

// forgetToken takes the cookie back.
func (h *Handler) forgetToken(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, h.cookie(r, "", -1))
	w.WriteHeader(http.StatusNoContent)
}

// cookie returns the cookie that proves the token. It has no path, so browsers send it below the path of the
// page only, wherever that is mounted.
func (h *Handler) cookie(r *http.Request, value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: value, MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || h.trustProxy && r.Header.Get("X-Forwarded-Proto") == "https",
	}
}

// pause closes a budget.
func (h *Handler) pause(w http.ResponseWriter, r *http.Request) {
	h.act(w, r, func(o *order) error {
		return h.source.pause(r.Context(), o.Budget, time.Duration(o.For)*time.Millisecond, o.By, o.Reason)
	}, func(o *order) string {
		if o.For <= 0 || o.For > throttle.MaxPenalty.Milliseconds() {
			return "bad length"
		}
		return ""
	})
}

// resume ends an operator's pause.
func (h *Handler) resume(w http.ResponseWriter, r *http.Request) {
	h.act(w, r, func(o *order) error { return h.source.resume(r.Context(), o.Budget, o.By, o.Reason) }, nil)
}

// act does what an operator orders who has the token and says why. check returns the word for what else is wrong
// with the order.
func (h *Handler) act(w http.ResponseWriter, r *http.Request, do func(*order) error, check func(*order) string) {
	l, a := languageOf(r), h.accessOf(r)
	if !a.Act || !a.Read {
		answerError(w, h.refusal(&a), l.word("no token"))
		return
	}
	o, ok := readOrder(w, r)
	if !ok {
		return
	}
	o.By = cmp.Or(a.User, cleaned(o.By, longestName))
	o.Reason = cleaned(o.Reason, longestReason)
	wrong := ""
	switch {
	case o.By == "":
		wrong = "no name"
	case o.Reason == "":
		wrong = "no reason"
	case check != nil:
		wrong = check(&o)
	}
	if wrong != "" {
		answerError(w, http.StatusUnprocessableEntity, l.word(wrong))
		return
	}
	if err := do(&o); err != nil {
		answerError(w, statusOf(err), fleet.Clean(err.Error(), 1000))
		return
	}
	h.sampler.poke()
	w.WriteHeader(http.StatusNoContent)
}

// cleaned returns a text fit to be stored and shown.
func cleaned(text string, most int) string { return fleet.Clean(strings.TrimSpace(text), most) }

// statusOf returns the status for an act that was not done.
func statusOf(err error) int {
	var longer *fleet.LongerError
	var open *fleet.NotPausedError
	var target *fleet.TargetError
	var away *fleet.Error
	switch {
	case errors.As(err, &longer), errors.As(err, &open):
		return http.StatusConflict
	case errors.As(err, &target):
		return http.StatusNotFound
	case errors.As(err, &away):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
