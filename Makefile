# The commands of the project. `make help` lists them.
SHELL = /bin/bash
CARGO ?= cargo
SUPERPAGE = target/release/superpage

.PHONY: help build install deb wheel book demo test kernel lint package pictures bench corpus coverage fuzz mutants reproduce
help: ## list the commands
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

build: ## build the command, target/release/superpage, and the programs that `superpage reproduce piehl12` runs
	$(CARGO) build --release --locked -p superpage --bins -p superpage-live --examples

SHARE ?= $(HOME)/.local/share
install: ## put the command into ~/.cargo/bin, its manual pages and completions into ~/.local/share (or SHARE=DIR)
	$(CARGO) install --path crates/cli --locked
	$${CARGO_HOME:-$(HOME)/.cargo}/bin/superpage pages $(SHARE)

deb: ## build a Debian package, target/debian/superpage_*.deb (installs cargo-deb 3 if it is missing or older)
	@$(CARGO) deb --version 2> /dev/null | grep -qE '(^| )([3-9]|[1-9][0-9]+)\.' || $(CARGO) install cargo-deb --version '^3' --locked
	$(CARGO) build --release --locked -p superpage --bins
	$(SUPERPAGE) pages target/release/share
	$(CARGO) deb -p superpage --no-build --strip

WHEEL = target/wheel
wheel: ## build the Python package, target/wheels/superpages-*.whl: some minutes (needs Python 3.11)
	@test -x $(WHEEL)/bin/maturin || { python3 -m venv $(WHEEL) && $(WHEEL)/bin/pip install --quiet 'maturin>=1.7,<2'; }
	cd python && ../$(WHEEL)/bin/maturin build --release --out ../target/wheels

BOOK = target/sphinx
$(BOOK)/bin/sphinx-build: docs/requirements.txt
	python3 -m venv $(BOOK)
	$(BOOK)/bin/pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	@touch $@

book: $(BOOK)/bin/sphinx-build ## build docs/ as a book with search, target/book/index.html, and check its links (needs Python 3.11)
	$(BOOK)/bin/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env -c docs -d $(BOOK)/doctrees . target/book
	@echo '<meta http-equiv="refresh" content="0; url=docs/README.html">' > target/book/index.html

demo: ## for which recorded programs superpages pay, and what they cost
	@echo "building: some five minutes on two cores the first time"
	@$(MAKE) --no-print-directory build
	./demo/run $(SUPERPAGE)

SKIPPED = $(CURDIR)/target/skipped
test: ## all tests; shows at the end what was skipped and what failed; fails where SUPERPAGE_REQUIRE names what was wanting
	@mkdir -p target && rm -f $(SKIPPED)
	@{ SUPERPAGE_SKIPPED=$(SKIPPED) $(CARGO) test --workspace --locked --no-fail-fast; status=$$?; \
	SUPERPAGE_SKIPPED=$(SKIPPED) CARGO=$(CARGO) python/test || status=1; exit $$status; } 2>&1 | tee target/tested; \
	status=$${PIPESTATUS[0]}; \
	if [ -s $(SKIPPED) ]; then echo "skipped, $$(wc -l < $(SKIPPED)):"; sort $(SKIPPED); else echo "nothing was skipped"; fi; \
	awk "$$FAILED" target/tested; exit $$status

# Each test that failed, with its file, from what cargo and pytest printed; what did not compile or did not end is in the lines of cargo.
define FAILED
/^ +Running/ { file = $$2 == "unittests" ? $$3 : $$2; sub(/^.*\(target/, "", file) }
/^ +Doc-tests/ { file = $$2 " (documents)" }
/^test .* \.\.\. FAILED/ { print "failed: " file ": " $$2 }
/^(FAILED|ERROR) / { print "failed: " $$2 }
/^ +`-p superpage.*`$$/ { print "failed in: " $$0 }
/^error: could not compile/ { print "failed: " $$0 }
endef
export FAILED

QEMU = qemu-system-x86_64 -accel tcg -smp 2 -m 128M -display none -monitor none -serial stdio -no-reboot -net none \
	-device isa-debug-exit,iobase=0xf4,iosize=4
kernel: ## boot a small kernel on superpage-vm in QEMU (needs qemu-system-x86; KERNEL_SECONDS=60: longer)
	cd kernel && $(CARGO) build --release --locked --target-dir ../target/kernel
	@$(QEMU) -kernel target/kernel/x86_64-unknown-linux-gnu/release/superpage-kernel \
		-append "$(KERNEL_SECONDS)"; test $$? = 1

lint: ## what CI checks beside the tests: format, comments, licences, clippy, docs, the lock file of the fuzz targets
	$(CARGO) update --workspace --locked --manifest-path fuzz/Cargo.toml
	$(CARGO) fmt --all --check
	.ci/comments
	.ci/licences
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

package: ## does each crate package, and build from its package alone? some minutes
	$(CARGO) package --workspace --exclude superpage-testing --exclude superpage-recorder --locked $(PACKAGE)

# What is simulated: live experiments need root, and change settings while they run.
SIMULATED = navarro02 park20 talluri94 talluri95 swanson98 gosakan23 tatar22 ingens16 hawkeye19 quicksilver20 ethp21 trident21 \
	jdk23 pcc23 dougan99 solomon24/contiguity,solomon24/sizes piehl12/misses,piehl12/page-sizes,piehl12/table1-6
reproduce: build ## every simulated table and figure beside the papers': docs/results/*.md, target/reproduce/*.html; half an hour
	@mkdir -p target/reproduce
	for names in $(SIMULATED); do page=$${names%%/*}; $(SUPERPAGE) reproduce $${names//,/ } \
		--export-markdown docs/results/$$page.md --export-html target/reproduce/$$page.html > /dev/null || exit; done

pictures: build ## the pictures of the documents, docs/map.svg and docs/pictures: some minutes (needs chromium)
	@python/test prepare
	target/python/bin/python demo/pictures $(SUPERPAGE)

bench: ## the numbers of docs/results.md, each beside its reference
	$(CARGO) bench --workspace --locked

corpus: build ## record the corpus again from scratch (needs qemu-user and the recorded programs)
	./corpus/record $(SUPERPAGE)

COVER = nice -n 10 target/release/examples/coverage
COVERED_SHORT = 3K/60K matrix:n=60 3K/20K tree:nodes=5000,operations=500 3K/30K chase:bytes=8M,references=500K \
	3K/30K random:bytes=64M,references=1500K,populate=no zipf:bytes=64M,references=1500K,populate=no \
	4K/60K matrix:n=400,rounds=2 4K/80K fftw:n=30
COVERED_LONG = 20K/60K zipf:bytes=64M,references=2M,populate=no random:bytes=64M,references=2M,populate=no \
	20K/90K matrix:n=60 20K/50K tree:nodes=5000,operations=1000 chase:bytes=8M,references=500K
COVERED_REAL = 10K/500K corpus/whole/gzip.sp 10K/1M corpus/whole/sha256sum.sp 40K/1M corpus/whole/xz.sp
COVERED_WIDE = 20K/150K stride:step=4K,touches=100K,rounds=60 20K/60K random:bytes=64M,references=2M,populate=no
coverage: ## do the intervals of sampled estimates hold the truth? 200 samplings of each stream: some 20 minutes
	$(CARGO) build --release --locked -p superpage --bins -p superpage-sim --example coverage
	$(COVER) harpertown reservation $(COVERED_SHORT)
	$(COVER) zen5 reservation $(COVERED_LONG)
	$(COVER) zen5,harpertown reservation $(COVERED_REAL)
	$(COVER) -n 20 alpha-21264 reservation $(COVERED_SHORT)
	$(COVER) -n 50 zen5+complete-subblock,zen5+colt,zen5+partial-subblock,zen5+range thp $(COVERED_WIDE)
	$(COVER) -n 50 "zen5:tlb.L2 DTLB.entries=128" thp $(COVERED_WIDE)
	$(COVER) -n 50 "zen5+complete-subblock:tlb.L2 DTLB.entries=128" mthp:size=64K $(COVERED_WIDE)
	cc -O1 -o target/fill corpus/inputs/fill.c
	target/release/superpage record -o target/fill.sp -- target/fill 64 600000
	$(COVER) -n 60 zen5,golden-cove,harpertown thp 5K/150K target/fill.sp

fuzz: ## a minute of new cases for each random test and fuzz target, on stable Rust; FUZZ_SECONDS=600, RANDOM_SECONDS=600 for longer
	./fuzz/random
	./fuzz/run

mutants: ## do the tests notice a fault? ten mutants of each file that matters most: hours (needs cargo-mutants)
	./mutants/run --sample $${MUTANTS_SAMPLE:-10} --seed $${MUTANTS_SEED:-1}
