//go:build unix

package processes

import "testing"

// Run runs all the tests, side by side, each with a place of its own.
func (s *Store) Run(t *testing.T, place func(*testing.T) string) {
	for name, test := range map[string]func(*testing.T, string){
		"P1_Fleet":              s.fleet,
		"P4_DeadProcess":        s.deadProcess,
		"P7_DeadHolder":         s.deadHolder,
		"P7_CancelledCrowd":     s.cancelledCrowd,
		"P11_NewsOfOthers":      s.NewsOfOthers,
		"P11_PenaltyToSleepers": s.penaltyToSleepers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, place(t))
		})
	}
}
