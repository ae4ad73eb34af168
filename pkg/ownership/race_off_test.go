//go:build !race

package ownership_test

const race = false
