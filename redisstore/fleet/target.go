package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
)

// A Target is a budget that is to be closed or opened.
type Target struct {
	Name  string // as [Budget.Name]
	Limit store.Limit

	charge store.Charge
}

// A TargetError says why a query names no budget, or several.
type TargetError struct {
	Name string   // what was asked for
	Why  string   // what is wrong, and what would help
	Of   []string // names of budgets or policies, one of which may be meant
}

// Error implements error.
func (e *TargetError) Error() string {
	text := fmt.Sprintf(`"%s": %s`, Clean(e.Name, longestName), e.Why)
	if len(e.Of) > 0 {
		text += ", such as " + strings.Join(e.Of[:min(len(e.Of), 5)], ", ")
	}
	return text
}

// A Query names a budget.
type Query struct {
	// Name is that of a policy, or of a budget as [Budget.Name] has it, of which the
	// beginning is enough.
	Name string

	// Key is the key in clear, as the policy's Key returns it. Only its hash is used.
	Key string

	// Table has policies that nodes may not have used yet. Defaults to none.
	Table []throttle.Policy
}

// Find returns the budget that a query names. It takes the policy from the query's table if the table
// has it, else from the reports of the nodes.
func (f *Fleet) Find(ctx context.Context, q Query) (Target, error) {
	nodes, now, _, err := f.nodes(ctx)
	if err != nil {
		return Target{}, err
	}

	known, err := f.closings(ctx, now)
	if err != nil {
		return Target{}, err
	}

	s := &Snapshot{Nodes: nodes, At: now}
	s.gather(known)
	var c store.Charge

	if i := slices.IndexFunc(q.Table, func(p throttle.Policy) bool { return p.Name == q.Name }); i >= 0 {
		c, err = q.chargeByTable(q.Table[i].Keyed || q.Table[i].Key != nil, s)
	} else if p := s.policy(q.Name); p != nil {
		c, err = q.chargeByReports(p, s)
	} else {
		c, err = q.chargeByName(s)
	}

	if err != nil {
		return Target{}, err
	}
	if c.Node {
		return Target{}, &TargetError{Name: q.Name, Why: "each node has this budget for itself, so it cannot be closed or opened from here"}
	}

	return Target{Clean(c.Budget.String(), longestName), c.Limit, c}, nil
}

// Names returns what [Query.Name] can be: the policies that nodes have used, and their
// budgets.
func (f *Fleet) Names(ctx context.Context) ([]string, error) {
	nodes, now, _, err := f.nodes(ctx)
	if err != nil {
		return nil, err
	}

	known, err := f.closings(ctx, now)
	if err != nil {
		return nil, err
	}

	s := &Snapshot{Nodes: nodes, At: now}
	s.gather(known)

	names := s.policies()
	for i := range s.Budgets {
		if b := &s.Budgets[i]; b.Node == "" {
			names = append(names, b.Name)
		}
	}

	return names, nil
}

// chargeByTable returns the charge of a policy in the table.
func (q *Query) chargeByTable(keyed bool, s *Snapshot) (store.Charge, error) {
	if keyed && q.Key == "" {
		return store.Charge{}, q.needsKey(s)
	}
	if !keyed && q.Key != "" {
		return store.Charge{}, &TargetError{Name: q.Name, Why: "the policy has one budget for all, and no keys: leave --key out"}
	}

	var asked pauseRecorder
	table, err := throttle.NewLimiters(throttle.Config{Store: &asked, Policies: throttle.WithoutAnswers(q.Table)})
	if err != nil {
		return store.Charge{}, err
	}

	l, err := table.Limiter(q.Name)
	if err != nil {
		return store.Charge{}, err
	}

	return asked.chargeOf(l, q.Key)
}

// chargeByReports returns the charge of a policy that nodes have reported.
func (q *Query) chargeByReports(p *policyUse, s *Snapshot) (store.Charge, error) {
	c, err := p.charge()
	if err != nil {
		return c, err
	}

	c.Budget.Key = store.BudgetOf(c.Budget.Policy, q.Key).Key
	forAll, known := store.BudgetOf(c.Budget.Policy, "").Key, s.budgetsOf(q.Name)
	isForAll := func(b *Budget) bool { return b.charge.Budget.Key == forAll }
	if q.Key != "" && len(known) > 0 && !slices.ContainsFunc(known, func(b *Budget) bool { return !isForAll(b) }) {
		return c, &TargetError{Name: q.Name, Why: "nodes have used one budget of the policy for all, and no keys: leave --key out, or say --file, the file of policies"}
	}
	if q.Key == "" && slices.ContainsFunc(s.budgetsOf(q.Name), func(b *Budget) bool { return b.charge.Budget.Key != c.Budget.Key }) {
		return c, q.needsKey(s)
	}

	return c, nil
}

// chargeByName returns the charge of the one budget whose name begins so.
func (q *Query) chargeByName(s *Snapshot) (c store.Charge, err error) {
	var found []*Budget
	for i := range s.Budgets {
		if b := &s.Budgets[i]; b.Node == "" && strings.HasPrefix(b.Name, q.Name) && len(q.Name) > len(b.Policy)+1 {
			found = append(found, b)
		}
	}

	switch {
	case len(found) == 1 && found[0].Err != "":
		return c, &TargetError{Name: q.Name, Why: found[0].Err + "; say --file, the file of policies"}
	case len(found) == 1:
		return found[0].charge, nil
	case len(found) > 1:
		return c, &TargetError{q.Name, "several budgets begin so", namesOf(found)}
	}

	known := s.policies()
	why := "no node has reported a policy or a budget of this name; say --file if none has used it yet"
	if len(known) > 0 {
		why += "; nodes have reported others"
	}

	return c, &TargetError{q.Name, why, known}
}

// policies returns the names of the policies that nodes have used.
func (s *Snapshot) policies() (known []string) {
	for i := range s.Nodes {
		for _, p := range s.Nodes[i].record.Policies {
			if name := Clean(p.Policy, longestName); !slices.Contains(known, name) {
				known = append(known, name)
			}
		}
	}
	slices.Sort(known)
	return known
}

// needsKey returns the error of a query that names a policy with keys, and no key.
func (q *Query) needsKey(s *Snapshot) error {
	return &TargetError{q.Name, "the policy has a budget for each key: say --key, or the name of a budget", namesOf(s.budgetsOf(q.Name))}
}

// policy returns what the node that reported last says of a policy; nil: no node has reported it.
func (s *Snapshot) policy(name string) (found *policyUse) {
	last := time.Duration(-1)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for j := range n.record.Policies {
			if p := &n.record.Policies[j]; p.Policy == name && (last < 0 || n.Ago.Duration < last) {
				found, last = p, n.Ago.Duration
			}
		}
	}
	return found
}

// budgetsOf returns the budgets of a policy.
func (s *Snapshot) budgetsOf(policy string) (all []*Budget) {
	for i := range s.Budgets {
		if b := &s.Budgets[i]; b.charge.Budget.Policy == policy {
			all = append(all, b)
		}
	}
	return all
}

// namesOf returns the names of budgets.
func namesOf(all []*Budget) (names []string) {
	for _, b := range all {
		names = append(names, b.Name)
	}
	return names
}

// A pauseRecorder is a store that only remembers the charge whose budget it is asked to pause.
type pauseRecorder struct {
	store.Store
	charge store.Charge
}

// Traits implements [store.Store].
func (a *pauseRecorder) Traits() store.Traits { return store.Traits{} }

// Pause implements [store.Store].
func (a *pauseRecorder) Pause(_ context.Context, c store.Charge, _ time.Duration) error {
	a.charge = c
	return nil
}

// chargeOf returns the charge of a limiter's budget, by a Pause that reaches this store only.
func (a *pauseRecorder) chargeOf(l *throttle.Limiter, key string) (store.Charge, error) {
	err := l.Pause(context.Background(), key, time.Second)
	return a.charge, err
}
