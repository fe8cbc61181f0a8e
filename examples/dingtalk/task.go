package main

import "time"

// A task is one call: the departments below one, or one page of its people.
type task struct {
	ID     int
	Path   string // pathDepartments or pathPeople
	Dept   int64
	Cursor int64 `json:",omitempty"` // of a page of people
	Tries  int   `json:",omitempty"` // how often it was tried before
}

// A result is what became of a task. Tasks and results are all that nodes and
// the fleet tell each other, so a node can as well be a process of its own.
type result struct {
	Task        task
	Departments []int64  `json:",omitempty"`
	People      []string `json:",omitempty"`
	Next        int64    `json:",omitempty"` // the cursor of the next page; 0: none
	Err         string   `json:",omitempty"` // why there is nothing of the above
	Returned    bool     `json:",omitempty"` // it was not done: its node ended
	Starts      []start  `json:",omitempty"` // the calls that this took
	Refusals    []string `json:",omitempty"` // the codes of their answers that said no
}

// A start is one call on its way to the upstream.
type start struct {
	Path string
	At   time.Time
}
