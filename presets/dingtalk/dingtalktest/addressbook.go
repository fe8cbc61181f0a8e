package dingtalktest

import (
	"fmt"
	"iter"
	"net/http"
	"path"
	"slices"
)

// An addressBook has the people of each department. The department with the id 1 is the root: everybody
// is in it, or below it. Each department has up to eleven children.
type addressBook struct {
	people [][]string       // user ids, by the department's id less 1
	of     map[string][]int // the ids of each person's departments
}

// newAddressBook generates an address book with a number of people, in a department for each 20 of them. Of
// each 25 departments one has more people than fit one page. One person in 50 is in two departments, if
// there are two.
func newAddressBook(people int) addressBook {
	departments := max(1, people/20)
	large := departments / 25 // how many departments are large

	b := addressBook{make([][]string, departments), make(map[string][]int)}
	for n := range people {
		// Two people of three are spread evenly over all departments. Each third person is in a large department: the
		// eighth of each 25.
		d := (n - n/3) % departments
		if n%3 == 0 && large > 0 {
			d = n/3%large*25 + 7
		}

		b.add(n+1, d+1)
		if second := (d + 1) % departments; n%50 == 49 && second != d {
			b.add(n+1, second+1)
		}
	}

	return b
}

// add puts a person into a department.
func (b addressBook) add(person, department int) {
	id := fmt.Sprintf("user%06d", person)
	b.people[department-1] = append(b.people[department-1], id)
	b.of[id] = append(b.of[id], department)
}

// has reports whether there is a department.
func (b addressBook) has(id int) bool { return id >= 1 && id <= len(b.people) }

// below yields the departments directly below a department: the departments below id are 11*id-9 to 11*id+1.
func (b addressBook) below(id int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for sub := 11*id - 9; sub <= 11*id+1 && b.has(sub); sub++ {
			if !yield(sub) {
				return
			}
		}
	}
}

// under returns the sorted ids of the people of a department and of all departments below it, each once.
func (b addressBook) under(id int) (people []string) {
	people = slices.Clone(b.people[id-1])
	for sub := range b.below(id) {
		people = append(people, b.under(sub)...)
	}

	// A person in several departments is there once.
	slices.Sort(people)
	return slices.Compact(people)
}

// listSub lists the departments directly below one, or refuses an id that no department has. A call without
// an id means the root.
func (c *call) listSub() http.HandlerFunc {
	id := c.number("dept_id", 1)
	if !c.book.has(id) {
		return wrapped("60003", "部门不存在")
	}
	subs := []object{}
	for sub := range c.book.below(id) {
		subs = append(subs, object{"dept_id": sub, "name": fmt.Sprintf("Department %03d", sub), "parent_id": id})
	}
	return result(subs)
}

// listSubID lists the ids of the departments directly below one. It refuses a call without an id, or with an
// id that no department has.
func (c *call) listSubID() http.HandlerFunc {
	id := c.number("dept_id", 0)
	if !c.book.has(id) {
		return wrapped("60003", "部门不存在")
	}
	return result(object{"dept_id_list": orEmpty(slices.Collect(c.book.below(id)))})
}

// listUsers lists the people of one department: the page that begins at the cursor. It refuses a page of
// more than 100 people or of none, a missing or negative cursor, and an id that no department has.
func (c *call) listUsers() http.HandlerFunc {
	id, cursor, size := c.number("dept_id", 0), c.number("cursor", -1), c.number("size", 0)
	switch {
	case size < 1 || size > 100 || cursor < 0:
		return wrapped("40035", "不合法的参数")
	case !c.book.has(id):
		return wrapped("60003", "部门不存在")
	}

	// A cursor behind the end has an empty page.
	people := c.book.people[id-1]
	from := min(cursor, len(people))
	to := min(from+size, len(people))

	list := []object{} // not nil: an empty page is [] in JSON
	for _, person := range people[from:to] {
		list = append(list, object{"userid": person, "name": "Name of " + person, "dept_id_list": c.book.of[person]})
	}

	page := object{"has_more": to < len(people), "list": list}
	if to < len(people) {
		page["next_cursor"] = to
	}

	return result(page)
}

// contact shows one person as api.dingtalk.com does.
func (c *call) contact() http.HandlerFunc {
	id := path.Base(c.URL.Path)
	return reply(http.StatusOK, object{"nick": "Name of " + id, "unionId": id})
}

// result is a success of oapi.dingtalk.com that has something to tell.
func result(value any) http.HandlerFunc {
	return reply(http.StatusOK, object{"errcode": 0, "errmsg": "ok", "result": value})
}
