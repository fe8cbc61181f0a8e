package redisstore

import (
	"strconv"
	"time"
)

// How many budgets a program remembers, and how many pauses.
const (
	MostBudgets  = mostBudgets
	MostClosings = mostClosings
)

// RememberBudgets has the program hear of n budgets, and returns how many it
// remembers.
func (s *Store) RememberBudgets(n int) int {
	v := make(numbers, 8*2*lives)
	for i := range n {
		s.memory.note(strconv.Itoa(i), mention{}, v, 1, time.Now(), time.Second)
	}
	return len(s.memory.budgets)
}

// RememberPauses does the same with pauses.
func (s *Store) RememberPauses(n int) int {
	for i := range n {
		s.closings.note(strconv.Itoa(i), time.Now().Add(time.Hour))
	}
	return len(s.closings.until)
}
