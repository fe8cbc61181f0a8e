package dashboard

import (
	"net/http"
	"strconv"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

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
