# terse.awk: go test -v in; out comes what plain go test says, and also why a test was skipped.
# What a test says is kept until it is known how it ended, and shown unless it passed.

function tell(name) {
	printf "%s", said[name]
	delete said[name]
}

function tell_all(   name) {
	for (name in said) tell(name)
	now = ""
}

/^=== (RUN|NAME|CONT|PAUSE) / { now = $3; next }

/^ *--- (PASS|FAIL|SKIP): / {
	if ($2 == "PASS:") {
		delete said[$3]
	} else {
		print
		tell($3)
	}
	next
}

/^PASS$/ { now = ""; next }

# The end of a package.
/^(ok  |FAIL|\?   )/ {
	if (/^FAIL/) tell_all()
	delete said
	now = ""
	print
	fflush()
	next
}

now == "" { print; next }
{ said[now] = said[now] $0 "\n" }

END { tell_all() }
