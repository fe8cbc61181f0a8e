package main

import (
	"slices"
	"time"
)

// rootDepartment is the department that every company has.
const rootDepartment = 1

// A pull is the state of the whole job: what is still to be done, and what has
// come in. One goroutine owns it.
type pull struct {
	retries int // how often a task that a node gave back is handed out again

	todo        map[string][]task // by path
	inFlight    map[string]int    // by path
	lastID      int
	people      map[string]int // user id: how often
	departments int
	starts      []start
	refused     map[string]int
	lost        int    // tasks that were given up
	reason      string // why the first one failed
	done        []time.Time
}

func newPull(retries int) *pull {
	p := &pull{
		retries:  retries,
		todo:     make(map[string][]task),
		inFlight: make(map[string]int),
		people:   make(map[string]int),
		refused:  make(map[string]int),
	}
	p.visit(rootDepartment)
	return p
}

// visit adds what there is to ask about a department.
func (p *pull) visit(dept int64) {
	p.departments++
	p.add(task{Path: pathDepartments, Dept: dept})
	p.add(task{Path: pathPeople, Dept: dept})
}

func (p *pull) add(t task) {
	p.lastID++
	t.ID = p.lastID
	p.todo[t.Path] = append(p.todo[t.Path], t)
}

// next returns the task to hand out next. Both APIs have limits of their own,
// so the one that fewer workers are busy with comes first.
func (p *pull) next() (task, bool) {
	paths := []string{pathDepartments, pathPeople}
	slices.SortStableFunc(paths, func(a, b string) int { return p.inFlight[a] - p.inFlight[b] })
	for _, path := range paths {
		if len(p.todo[path]) > 0 {
			return p.todo[path][0], true
		}
	}
	return task{}, false
}

// taken notes that a task was handed out.
func (p *pull) taken(t task) {
	p.todo[t.Path] = p.todo[t.Path][1:]
	p.inFlight[t.Path]++
}

// finished reports whether there is nothing to do and nothing under way.
func (p *pull) finished() bool { return p.open() == 0 }

// open is how many tasks have no result yet.
func (p *pull) open() int {
	n := 0
	for _, path := range []string{pathDepartments, pathPeople} {
		n += len(p.todo[path]) + p.inFlight[path]
	}
	return n
}

// settle takes a result in.
func (p *pull) settle(r result, now time.Time) {
	p.inFlight[r.Task.Path]--
	p.starts = append(p.starts, r.Starts...)
	p.done = append(p.done, now)
	for _, code := range r.Refusals {
		p.refused[code]++
	}
	if r.Err != "" {
		p.fail(r)
		return
	}
	for _, dept := range r.Departments {
		p.visit(dept)
	}
	for _, id := range r.People {
		p.people[id]++
	}
	if r.Next != 0 {
		p.add(task{Path: pathPeople, Dept: r.Task.Dept, Cursor: r.Next})
	}
}

// fail gives a task up, unless it was not done because its node ended.
func (p *pull) fail(r result) {
	if p.reason == "" {
		p.reason = r.Err
	}
	if !r.Returned || r.Task.Tries >= p.retries {
		p.lost++
		return
	}
	r.Task.Tries++
	p.add(r.Task)
}

// rate is how many calls came back in the last second.
func (p *pull) rate(now time.Time) int {
	n := len(p.done)
	for n > 0 && now.Sub(p.done[n-1]) < time.Second {
		n--
	}
	return len(p.done) - n
}

// waiting is how many calls were handed to a node and wait for their turn, or
// for an answer.
func (p *pull) waiting() int { return p.inFlight[pathDepartments] + p.inFlight[pathPeople] }

// refusals is how many answers said no because of a limit or for any other
// reason, bans apart.
func (p *pull) refusals() int {
	n := 0
	for code, count := range p.refused {
		if code != banned {
			n += count
		}
	}
	return n
}
