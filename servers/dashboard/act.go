package dashboard

import (
	"cmp"
	"encoding/json"
	"errors"
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
	bodyTime      = 10 * time.Second // how long the body of an order may take
	longestPause  = 6 * time.Hour    // from the page
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
	Key    string `json:"key"` // that is looked for
}

// readOrder reads an order. It answers by itself if there is none.
func readOrder(w http.ResponseWriter, r *http.Request) (o order, ok bool) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		answerError(w, http.StatusUnsupportedMediaType, "Content-Type: application/json is missing")
		return o, false
	}

	// A client that sends its body by and by holds a connection for bodyTime at most. A server that knows no
	// deadlines has none.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime))
	err = json.NewDecoder(http.MaxBytesReader(w, r.Body, longestBody)).Decode(&o)
	_ = control.SetReadDeadline(time.Time{})

	if err != nil {
		w.Header().Set("Connection", "close")
		answerError(w, http.StatusBadRequest, "the body is no JSON of an order")
		return o, false
	}

	return o, true
}

// An office takes the orders of operators.
type office struct {
	guard  *guard
	source Source
	done   func() // is called when something was done
}

// tellAccess answers with what the viewer may do.
func (o *office) tellAccess(w http.ResponseWriter, r *http.Request) {
	answerJSON(w, http.StatusOK, o.guard.accessOf(r))
}

// takeToken gives who knows the token a cookie that proves it.
func (o *office) takeToken(w http.ResponseWriter, r *http.Request) {
	what, ok := readOrder(w, r)
	if !ok {
		return
	}

	if !o.guard.token.is(what.Token) {
		o.guard.answerWrong(w, r)
		return
	}

	until := time.Now().Add(cookieLasts)
	http.SetCookie(w, o.cookie(r, o.guard.token.proof(until), int(cookieLasts.Seconds())))
	r.Header.Set("Authorization", "Bearer "+what.Token)
	answerJSON(w, http.StatusOK, o.guard.accessOf(r))
}

// forgetToken takes the cookie back: from now on it proves nothing, whoever has it.
func (o *office) forgetToken(w http.ResponseWriter, r *http.Request) {
	o.guard.revoke(r)
	http.SetCookie(w, o.cookie(r, "", -1))
	w.WriteHeader(http.StatusNoContent)
}

// cookie returns the cookie that proves the token. Over http it has no path, so browsers send it below the path of the
// page only, wherever that is mounted. Over https it has the path "/", as browsers want it of a cookie that no other host
// can set.
func (o *office) cookie(r *http.Request, value string, age int) *http.Cookie {
	c := &http.Cookie{Name: cookieName, Value: value, MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if o.guard.isSecure(r) {
		c.Name, c.Path, c.Secure = secureCookieName, "/", true
	}
	return c
}

// pause closes a budget.
func (o *office) pause(w http.ResponseWriter, r *http.Request) {
	o.act(w, r, func(what *order) error {
		return o.source.pause(r.Context(), what.Budget, time.Duration(what.For)*time.Millisecond, what.By, what.Reason)
	}, func(what *order) string {
		if what.For <= 0 || what.For > longestPause.Milliseconds() {
			return "bad length"
		}
		return ""
	})
}

// resume ends an operator's pause.
func (o *office) resume(w http.ResponseWriter, r *http.Request) {
	o.act(w, r, func(what *order) error { return o.source.resume(r.Context(), what.Budget, what.By, what.Reason) }, nil)
}

// act does what an operator orders who has the token and says why. check returns the word for what else is wrong
// with the order.
func (o *office) act(w http.ResponseWriter, r *http.Request, do func(*order) error, check func(*order) string) {
	l, a := languageOf(r), o.guard.accessOf(r)
	if !a.Act || !a.Read {
		answerError(w, a.refusal(), l.word("no token"))
		return
	}

	what, ok := readOrder(w, r)
	if !ok {
		return
	}

	what.By = cmp.Or(a.User, cleaned(what.By, longestName))
	what.Reason = cleaned(what.Reason, longestReason)

	wrong := ""
	switch {
	case what.By == "":
		wrong = "no name"
	case what.Reason == "":
		wrong = "no reason"
	case check != nil:
		wrong = check(&what)
	}

	if wrong != "" {
		answerError(w, http.StatusUnprocessableEntity, l.word(wrong))
		return
	}

	if err := do(&what); err != nil {
		answerError(w, statusOf(err), fleet.Clean(err.Error(), 1000))
		return
	}

	o.done()
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
	case fleet.Denied(err):
		return http.StatusForbidden
	case errors.As(err, &away):
		return http.StatusServiceUnavailable
	}

	return http.StatusInternalServerError
}

// why says why requests waited for a budget at a moment, and of which reading that is true; false: nothing is
// known of that.
func (s *sampler) why(id string, at int64) (read int64, sentence *phrase, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	p, lasts, known := s.points.at(id, at)
	if !known || at-p.At > lasts.Milliseconds() || s.reading == nil {
		return 0, nil, false
	}

	var m moment
	for i := range s.reading.Budgets {
		if b := &s.reading.Budgets[i]; b.ID == id {
			m = b.moment()
			if p.At != s.reading.At.UnixMilli() { // only a reading knows these
				m.Repeated, m.Ceiling = 0, 0
			}
		}
	}

	m.Closer, m.By, m.Reason = "", "", ""
	m.Used, m.Capacity, m.Booked, m.Waiting = p.Used, p.Capacity, p.Booked, p.Waiting
	m.Wait, m.Left = millis(p.Wait), millis(p.Left)
	m.setBand(s.closed[id], p.At)
	w := whyOf(m)

	return p.At, &w, true
}

// history returns all points of a budget; false: it is not known.
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

// answerWhy answers with the sentence that says why requests wait for a budget, or did at a moment.
func (s *sampler) answerWhy(w http.ResponseWriter, r *http.Request) {
	at, err := strconv.ParseInt(r.FormValue("at"), 10, 64)
	if err != nil {
		answerError(w, http.StatusBadRequest, languageOf(r).word("no such moment"))
		return
	}
	moment, sentence, known := s.why(r.FormValue("budget"), at)
	if !known {
		answerError(w, http.StatusNotFound, languageOf(r).word("no such moment"))
		return
	}
	answerJSON(w, http.StatusOK, map[string]any{"at": moment, "why": sentence.in(languageOf(r))})
}

// longestKey bounds the key that a viewer looks for.
const longestKey = 4 << 10

// answerFind answers with the ids of the shown budgets that belong to a key. The key comes in the body, so that no log of
// addresses has it; it is hashed, and not kept.
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

// find returns the ids of the shown budgets that belong to a key.
func (s *sampler) find(key string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	ids := []string{}
	if s.reading == nil {
		return ids
	}

	for i := range s.reading.Budgets {
		b := &s.reading.Budgets[i]
		if fleet.Clean(store.BudgetOf(b.Policy, key).String(), longestName) == b.Name {
			ids = append(ids, b.ID)
		}
	}

	return ids
}
