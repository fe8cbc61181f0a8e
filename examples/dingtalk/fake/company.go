package fake

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Root is the id of the department that every company has.
const Root = 1

// A Company is a made-up address book: a tree of departments, and people,
// each in exactly one of them. The same size gives the same company.
type Company struct {
	departments map[int64]*department
	people      map[string]*person // by user id
	byUnion     map[string]*person
	total       int
}

type department struct {
	ID, Parent int64
	Name       string
	children   []*department
	people     []*person
}

type person struct {
	UserID, UnionID, Name string
	Department            int64
}

// newCompany builds a company. Every department has up to eleven below it, and
// every twenty-fifth is so large that one page does not hold its people.
func newCompany(people, departments int) *Company {
	c := &Company{
		departments: make(map[int64]*department),
		people:      make(map[string]*person),
		byUnion:     make(map[string]*person),
		total:       people,
	}
	all := make([]*department, departments)
	for i := range all {
		d := &department{ID: Root + int64(i), Name: fmt.Sprintf("Department %03d", i)}
		if i > 0 {
			parent := all[(i-1)/11]
			d.Parent = parent.ID
			parent.children = append(parent.children, d)
		}
		all[i], c.departments[d.ID] = d, d
	}
	random := rand.New(rand.NewPCG(uint64(people), uint64(departments)))
	for i := range people {
		c.hire(all[pick(random, departments)], i+1)
	}
	return c
}

// pick chooses a department; the large ones get about a third of the people.
func pick(random *rand.Rand, departments int) int {
	if large := departments / 25; large > 0 && random.IntN(3) == 0 {
		return random.IntN(large)*25 + 7
	}
	return random.IntN(departments)
}

func (c *Company) hire(d *department, number int) {
	p := &person{
		UserID:     fmt.Sprintf("user%06d", number),
		UnionID:    fmt.Sprintf("union%06d", number),
		Name:       fmt.Sprintf("Employee %04d", number),
		Department: d.ID,
	}
	d.people = append(d.people, p)
	c.people[p.UserID], c.byUnion[p.UnionID] = p, p
}

// People returns how many people the company has.
func (c *Company) People() int { return c.total }

// Departments returns how many departments the company has, the root included.
func (c *Company) Departments() int { return len(c.departments) }

// UserIDs returns everybody's user id, in order.
func (c *Company) UserIDs() []string {
	ids := make([]string, 0, len(c.people))
	for id := range c.people {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Pages returns how many calls of user/list, at size people each, it takes to
// see everybody; a department without people takes one as well.
func (c *Company) Pages(size int) int {
	pages := 0
	for _, d := range c.departments {
		pages += max(1, (len(d.people)+size-1)/size)
	}
	return pages
}
