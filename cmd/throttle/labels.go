package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// Bounds of a file of labels.
const (
	mostLabels     = 10_000 // each is hashed once per policy with keys
	mostLabelBytes = 4 << 20
	longestLabel   = 100
)

// budgetPattern matches names of budgets: a policy, and the beginning of a
// hashed key.
var budgetPattern = regexp.MustCompile(`^.+/[0-9a-f]{12}$`)

// labels are readable names for hashed keys, which an operator keeps in a file. They are never sent to Redis.
// The zero labels have no names. After read they are safe for concurrent use.
type labels struct {
	file string // flag

	budgets map[string]string // by name of the budget
	keys    [][2]string       // pairs of key and label

	mu       sync.Mutex
	byPolicy map[string]map[string]string // labels from keys, by policy and by name of the budget; see of
}

// addFlag adds the flag that names the file.
func (l *labels) addFlag(f *pflag.FlagSet) {
	f.StringVar(&l.file, "labels", "", "file with display names of hashed keys; each line has the key or the budget, a tab, and the name; the file is read once, and its contents are not stored")
}

// read reads the file, if one is named. An error about its contents names the wrong lines, and quotes none.
func (l *labels) read() error {
	if l.file == "" {
		return nil
	}

	text, err := os.ReadFile(l.file)
	if err != nil {
		return fmt.Errorf("--labels: %w", err)
	}
	if len(text) > mostLabelBytes {
		return fmt.Errorf("--labels: %s has %d bytes: at most %d", l.file, len(text), mostLabelBytes)
	}

	if err := l.parse(text); err != nil {
		return fmt.Errorf("--labels: %s: %w", l.file, err)
	}

	return nil
}

// parse adds the labels in the text of a file. A line is a key or a budget, a tab, and its label. Empty lines, and lines that
// begin with #, have none. The error names up to mostLineErrors wrong lines.
func (l *labels) parse(text []byte) error {
	l.budgets = make(map[string]string)

	// Errors quote no label and no key: the keys may be secrets.
	var errs []error
	n := 0
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\ufeff"))) {
		n++
		labelled, label, hasTab := strings.Cut(strings.TrimRight(string(line), "\r\n"), "\t")
		label = strings.TrimSpace(label)
		isEmpty := !hasTab && strings.TrimSpace(labelled) == ""
		isComment := strings.HasPrefix(labelled, "#")
		switch {
		case isEmpty, isComment:
			continue
		case !hasTab || labelled == "" || label == "":
			errs = append(errs, fmt.Errorf("line %d: it is not a key or a budget, a tab, and a name", n))
		case !utf8.ValidString(label) || utf8.RuneCountInString(label) > longestLabel:
			errs = append(errs, fmt.Errorf("line %d: the name is no text of %d characters at most", n, longestLabel))
		case budgetPattern.MatchString(labelled):
			l.budgets[labelled] = fleet.Clean(label, longestLabel)
		default:
			l.keys = append(l.keys, [2]string{labelled, fleet.Clean(label, longestLabel)})
		}
	}

	if len(l.budgets)+len(l.keys) > mostLabels {
		errs = append(errs, fmt.Errorf("it has more than %d names", mostLabels))
	}
	if len(errs) > mostLineErrors {
		errs = append(errs[:mostLineErrors], fmt.Errorf("and %d more", len(errs)-mostLineErrors))
	}

	return errors.Join(errs...)
}

// mostLineErrors is how many lines an error names.
const mostLineErrors = 10

// of returns the label of a budget, given its policy and its name, or "". A label of the budget itself comes before one of
// its key.
func (l *labels) of(policy, budget string) string {
	if label := l.budgets[budget]; label != "" || len(l.keys) == 0 {
		return label
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	// Hash the keys once for each policy: the name of a budget has its key as a hash, which depends on the policy.
	byBudget := l.byPolicy[policy]
	if byBudget == nil {
		byBudget = make(map[string]string, len(l.keys))
		for _, k := range l.keys {
			byBudget[store.BudgetOf(policy, k[0]).String()] = k[1]
		}

		if l.byPolicy == nil {
			l.byPolicy = make(map[string]map[string]string)
		}

		l.byPolicy[policy] = byBudget
	}

	return byBudget[budget]
}

// labelled returns a source with labelled budgets.
func (l *labels) labelled(from source) source {
	return func(ctx context.Context) (*fleet.Snapshot, error) {
		s, err := from(ctx)
		if err == nil {
			l.set(s)
		}
		return s, err
	}
}

// set gives the budgets of a snapshot their labels.
func (l *labels) set(s *fleet.Snapshot) {
	for i := range s.Budgets {
		b := &s.Budgets[i]
		b.Label = l.of(b.Policy, b.Name)
	}
}
