package dashboard

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

const (
	longestBody   = 8 << 10
	bodyTime      = 10 * time.Second // time limit for the body of an order
	longestPause  = 6 * time.Hour    // from the page
	longestName   = 200
	longestReason = 500
)

// An order is the body of an operator's request.
type order struct {
	Token  string `json:"token"`  // of a login
	Budget string `json:"budget"` // by its id
	For    int64  `json:"for"`    // of a pause, in milliseconds
	By     string `json:"by"`
	Reason string `json:"reason"`
	Key    string `json:"key"` // to search for
}

// readOrder reads and parses an order. On failure it answers the request itself, and returns false.
func readOrder(w http.ResponseWriter, r *http.Request) (o order, ok bool) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		answerError(w, http.StatusUnsupportedMediaType, "Content-Type: application/json is missing")
		return o, false
	}

	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestBody))
	if err == nil {
		err = json.Unmarshal(text, &o)

		// The deadline was for the body. The act may take longer.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}

	// The body may not have been read to its end, so the connection serves no further request.
	if err != nil {
		w.Header().Set("Connection", "close")
		answerError(w, http.StatusBadRequest, "the body is no JSON of an order")
		return o, false
	}

	return o, true
}

// An office executes orders of operators.
type office struct {
	guard  *guard
	source Source
	done   func() // called after each act that succeeded
}

// tellAccess answers with the viewer's rights.
func (o *office) tellAccess(w http.ResponseWriter, r *http.Request) {
	answerJSON(w, http.StatusOK, o.guard.accessOf(r))
}

// takeToken exchanges the token for a cookie.
func (o *office) takeToken(w http.ResponseWriter, r *http.Request) {
	given, ok := readOrder(w, r)
	if !ok {
		return
	}

	if !o.guard.token.is(given.Token) {
		o.guard.answerWrong(w, r)
		return
	}

	until := time.Now().Add(cookieLasts)
	http.SetCookie(w, o.cookie(r, o.guard.token.proof(until), int(cookieLasts.Seconds())))

	// The cookie is only in the answer, so this request proves the token by its header.
	r.Header.Set("Authorization", "Bearer "+given.Token)
	answerJSON(w, http.StatusOK, o.guard.accessOf(r))
}

// forgetToken revokes the cookie, including all copies.
func (o *office) forgetToken(w http.ResponseWriter, r *http.Request) {
	o.guard.revoke(r)
	http.SetCookie(w, o.cookie(r, "", -1))
	w.WriteHeader(http.StatusNoContent)
}

// cookie returns the cookie that proves the token. Over http it has no path, so that browsers send it only
// below the path where the page is mounted. Over https its path is "/", as the prefix __Host- demands.
func (o *office) cookie(r *http.Request, value string, age int) *http.Cookie {
	c := &http.Cookie{Name: cookieName, Value: value, MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if o.guard.isSecure(r) {
		c.Name, c.Path, c.Secure = secureCookieName, "/", true
	}
	return c
}

// pause closes a budget.
func (o *office) pause(w http.ResponseWriter, r *http.Request) {
	o.act(w, r, func(given *order) error {
		return o.source.pause(r.Context(), given.Budget, time.Duration(given.For)*time.Millisecond, given.By, given.Reason)
	}, func(given *order) string {
		if given.For <= 0 || given.For > longestPause.Milliseconds() {
			return "bad length"
		}
		return ""
	})
}

// resume ends an operator's pause.
func (o *office) resume(w http.ResponseWriter, r *http.Request) {
	o.act(w, r, func(given *order) error { return o.source.resume(r.Context(), given.Budget, given.By, given.Reason) }, nil)
}

// act executes an order by do, for an operator with the token, a name and a reason, and answers 204. Otherwise it answers
// with the refusal. check returns the key of a word that says why the order is wrong, or "". A nil check finds every order
// right.
func (o *office) act(w http.ResponseWriter, r *http.Request, do func(*order) error, check func(*order) string) {
	lang, rights := languageOf(r), o.guard.accessOf(r)

	// Check the rights before the body is read.
	if !rights.Act || !rights.Read {
		answerError(w, rights.refusal(), lang.word("no token"))
		return
	}

	given, ok := readOrder(w, r)
	if !ok {
		return
	}

	// The name of a login outranks a typed name.
	given.By = cmp.Or(rights.User, cleaned(given.By, longestName))
	given.Reason = cleaned(given.Reason, longestReason)

	wrong := ""
	switch {
	case given.By == "":
		wrong = "no name"
	case given.Reason == "":
		wrong = "no reason"
	case check != nil:
		wrong = check(&given)
	}

	if wrong != "" {
		answerError(w, http.StatusUnprocessableEntity, lang.word(wrong))
		return
	}

	if err := do(&given); err != nil {
		answerError(w, statusOf(err), fleet.Clean(refusalOf(err).in(lang), 1000))
		return
	}

	// Read the source at once, so that all open pages show the act.
	o.done()
	w.WriteHeader(http.StatusNoContent)
}

// cleaned returns a text that is safe to store and show.
func cleaned(text string, most int) string { return fleet.Clean(strings.TrimSpace(text), most) }

// statusOf returns the status for a failed act.
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
	case fleet.Denied(err):
		return http.StatusForbidden
	case errors.As(err, &away):
		return http.StatusServiceUnavailable
	}

	return http.StatusInternalServerError
}

// refusalOf explains why an act failed. An answer of Redis, or an error of the network, is quoted as it is in both languages.
func refusalOf(err error) *phrase {
	p := &phrase{err.Error(), err.Error()}
	var longer *fleet.LongerError
	var open *fleet.NotPausedError
	switch {
	case errors.As(err, &longer):
		n := longer.Note
		p.Chinese = fmt.Sprintf("%s 已被 %s 暂停（“%s”），%s 才结束；要提前结束，请先恢复", n.Budget, n.By, n.Reason, n.Until.UTC().Format(time.RFC3339))
	case errors.As(err, &open) && open.Closed > 0:
		p.Chinese = fmt.Sprintf("%s 不是人工暂停的，是上游的回答让它停用，还剩 %v；要马上恢复，可以用 throttle reset", open.Budget, open.Closed.Round(time.Millisecond))
	case errors.As(err, &open):
		p.Chinese = open.Budget + " 没有被暂停"
	}
	return p
}

// why explains why requests waited for a budget at a moment, by the last point up to then, and returns the moment of the
// point. Moments are in Unix milliseconds. known is false if there is no such point, if it is too old, or while there is no reading.
func (s *sampler) why(id string, at int64) (pointAt int64, sentence *phrase, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	p, lasts, known := s.points.at(id, at)

	// A point is valid for a short time only. An older point says nothing about this moment.
	if !known || at-p.At > lasts.Milliseconds() || s.reading == nil {
		return 0, nil, false
	}

	// A budget that is not shown any more has only its point.
	var m moment
	for i := range s.reading.Budgets {
		if b := &s.reading.Budgets[i]; b.ID == id {
			m = b.moment()

			// Points do not record repeated bans and ceilings.
			if p.At != s.reading.At.UnixMilli() {
				m.Repeated, m.Ceiling = 0, 0
			}
		}
	}

	// Who closed the budget then is in the band of that time, not in the present reading.
	m.Closer, m.By, m.Reason = "", "", ""
	m.Used, m.Capacity, m.Booked, m.Waiting = p.Used, p.Capacity, p.Booked, p.Waiting
	m.Wait, m.Left = millis(p.Wait), millis(p.Left)
	m.setBand(s.closed[id], p.At)
	w := whyOf(m)

	return p.At, &w, true
}

// history returns all points of a budget. The result is false for an unknown budget.
func (s *sampler) history(id string) (columns, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.points.history(id)
}

// answerHistory answers with all points of a budget.
func (s *sampler) answerHistory(w http.ResponseWriter, r *http.Request) {
	points, known := s.history(r.FormValue("budget"))
	if !known {
		answerError(w, http.StatusNotFound, languageOf(r).word("no such budget"))
		return
	}
	answerJSON(w, http.StatusOK, points)
}

// answerWhy answers with the sentence that explains why requests wait for a budget, now or at a past moment.
func (s *sampler) answerWhy(w http.ResponseWriter, r *http.Request) {
	at, err := strconv.ParseInt(r.FormValue("at"), 10, 64)
	if err != nil {
		answerError(w, http.StatusBadRequest, languageOf(r).word("no such moment"))
		return
	}
	pointAt, sentence, known := s.why(r.FormValue("budget"), at)
	if !known {
		answerError(w, http.StatusNotFound, languageOf(r).word("no such moment"))
		return
	}
	answerJSON(w, http.StatusOK, map[string]any{"at": pointAt, "why": sentence.in(languageOf(r))})
}

// longestKey bounds a key to search for.
const longestKey = 4 << 10

// answerFind answers with the ids of the shown budgets of a key. The key comes in the body, so that no access
// log has it. It is hashed, and not kept.
func (s *sampler) answerFind(w http.ResponseWriter, r *http.Request) {
	o, ok := readOrder(w, r)
	if !ok {
		return
	}
	if o.Key == "" || len(o.Key) > longestKey {
		answerError(w, http.StatusUnprocessableEntity, languageOf(r).word("no such budget"))
		return
	}
	answerJSON(w, http.StatusOK, map[string][]string{"budgets": s.find(o.Key)})
}

// find returns the ids of the shown budgets of a key.
func (s *sampler) find(key string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	ids := []string{}
	if s.reading == nil {
		return ids
	}

	// A budget's name has the key only as a hash, which includes the policy.
	for i := range s.reading.Budgets {
		b := &s.reading.Budgets[i]
		if fleet.Clean(store.BudgetOf(b.Policy, key).String(), longestName) == b.Name {
			ids = append(ids, b.ID)
		}
	}

	return ids
}
