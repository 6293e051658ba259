import Glibc

/// Growing array for the index of one thread. It is never copied, shared or reference-counted.
///
/// The standard library's array checks its reference count at each access. That matters in a lookup that takes only
/// some dozen nanoseconds. Swift 6.4 brings an array of non-copyable elements, which will replace this type.
@safe
struct Pool<Element: ~Copyable>: ~Copyable {
    private var base: UnsafeMutablePointer<Element>
    private(set) var count = 0
    private(set) var capacity: Int

    init(capacity: Int = 0) {
        self.capacity = capacity
        // SAFETY: freed in `deinit` or by `grow`, once, because the owner is not copyable.
        unsafe base = Self.allocate(capacity)
    }

    deinit {
        // SAFETY: the first `count` elements are initialised, and the allocation is this pool's own.
        unsafe base.deinitialize(count: count)
        unsafe Self.free(base, capacity)
    }

    var isEmpty: Bool { count == 0 }

    subscript(index: Int) -> Element {
        @inline(__always)
        unsafeAddress {
            // SAFETY: the place is checked; the first `count` elements are initialised.
            unsafe address(of: index)
        }
        @inline(__always)
        unsafeMutableAddress {
            // SAFETY: as above; the accessor has exclusive access to the pool.
            unsafe mutableAddress(of: index)
        }
    }

    /// Returns an element's address, for the subscript of a type that wraps the pool.
    @inline(__always)
    @unsafe func address(of index: Int) -> UnsafePointer<Element> {
        precondition(index >= 0 && index < count, "an element outside the pool")
        // SAFETY: checked in the line above; whoever asks keeps the pool borrowed.
        return unsafe UnsafePointer(base + index)
    }

    @inline(__always)
    @unsafe mutating func mutableAddress(of index: Int) -> UnsafeMutablePointer<Element> {
        precondition(index >= 0 && index < count, "an element outside the pool")
        // SAFETY: as above.
        return unsafe base + index
    }

    @inline(__always)
    mutating func append(_ element: consuming Element) {
        if count == capacity { grow() }
        // SAFETY: `grow` made room for one more; the place is not initialised.
        unsafe (base + count).initialize(to: element)
        count &+= 1
    }

    mutating func removeLast() -> Element {
        precondition(count > 0, "an empty pool has no last element")
        count &-= 1
        // SAFETY: the place was initialised, and is not any more as far as `count` says.
        return unsafe (base + count).move()
    }

    mutating func removeAll() {
        // SAFETY: the first `count` elements are initialised.
        unsafe base.deinitialize(count: count)
        count = 0
    }

    @inline(never)
    private mutating func grow() {
        let larger = max(4, capacity + capacity / 2)
        // SAFETY: the elements are moved into the new allocation, and the old one is freed exactly once.
        let moved = unsafe Self.allocate(larger)
        unsafe moved.moveInitialize(from: base, count: count)
        unsafe Self.free(base, capacity)
        unsafe base = moved
        capacity = larger
    }

    /// Allocates memory that begins at a cache line. A large allocation is a mapping of its own, in huge pages. With
    /// small pages, scattered accesses would miss the processor's address cache (TLB), which costs a third of a lookup
    /// among 100,000 keys. A mapping also returns to the kernel as a whole when the pool has outgrown it.
    private static func allocate(_ capacity: Int) -> UnsafeMutablePointer<Element> {
        let byteCount = byteCount(capacity)
        guard isMapped(byteCount) else {
            // SAFETY: the memory has room for `capacity` elements, and is aligned for more than any of them needs.
            let memory = UnsafeMutableRawPointer.allocate(byteCount: byteCount, alignment: 64)
            return unsafe memory.bindMemory(to: Element.self, capacity: capacity)
        }
        // SAFETY: as above; a mapping begins a page. madvise is advice only, and concerns nothing but these bytes.
        let memory = unsafe mmap(nil, byteCount, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        guard let memory = unsafe memory, unsafe memory != MAP_FAILED else { fatalError("out of memory") }
        unsafe madvise(memory, byteCount, MADV_HUGEPAGE)
        return unsafe memory.bindMemory(to: Element.self, capacity: capacity)
    }

    private static func free(_ base: UnsafeMutablePointer<Element>, _ capacity: Int) {
        let byteCount = byteCount(capacity)
        // SAFETY: it goes back to where memory of this size came from; no element is left in it.
        if isMapped(byteCount) {
            unsafe munmap(base, byteCount)
        } else {
            unsafe UnsafeMutableRawPointer(base).deallocate()
        }
    }

    private static func byteCount(_ capacity: Int) -> Int { max(capacity, 1) * MemoryLayout<Element>.stride }

    private static func isMapped(_ byteCount: Int) -> Bool { byteCount >= 1 << 20 }
}

extension Pool {
    /// Span over all elements, borrowed until the pool changes.
    var span: Span<Element> {
        @_lifetime(borrow self)
        get {
            // SAFETY: the first `count` elements are initialised, and the span cannot outlive the borrow of `self`.
            let span = unsafe Span(_unsafeStart: base, count: count)
            return unsafe _overrideLifetime(span, borrowing: self)
        }
    }

    /// Appends copies of an element, or removes elements from the end, until there are `count` elements.
    mutating func resize(to count: Int, filling element: Element) {
        while self.count > count { _ = removeLast() }
        while self.count < count { append(element) }
    }

    /// Removes an element and moves the last one to its place.
    mutating func swapRemove(at index: Int) {
        let last = removeLast()
        if index < count { self[index] = last }
    }
}

/// Pool that reuses the places of removed elements. An element keeps its number until it is removed.
struct Slab<Element: ~Copyable>: ~Copyable {
    private var pool = Pool<Element>()
    private var free = Pool<UInt32>()

    /// Number of elements.
    var count: Int { pool.count - free.count }
    /// Upper bound of all numbers that were ever given: one more than the highest.
    var limit: Int { pool.count }

    subscript(number: UInt32) -> Element {
        @inline(__always)
        unsafeAddress {
            // SAFETY: the pool checks the place; its memory stays where it is while it is borrowed.
            unsafe pool.address(of: Int(number))
        }
        @inline(__always)
        unsafeMutableAddress {
            // SAFETY: as above; the accessor has exclusive access to the slab.
            unsafe pool.mutableAddress(of: Int(number))
        }
    }

    /// Returns an element's address, for a span over a part of the element.
    @unsafe func address(of number: UInt32) -> UnsafePointer<Element> {
        // SAFETY: the pool checks the place; whoever asks keeps the slab borrowed.
        unsafe pool.address(of: Int(number))
    }

    mutating func insert(_ element: consuming Element) -> UInt32 {
        if free.isEmpty {
            precondition(pool.count < Int(UInt32.max), "a slab has no more numbers")
            pool.append(element)
            return UInt32(pool.count - 1)
        }
        let number = free.removeLast()
        pool[Int(number)] = element
        return number
    }

    mutating func remove(_ number: UInt32) { free.append(number) }

    /// Numbers of all elements, in ascending order.
    var numbers: [UInt32] {
        var unused: Set<UInt32> = []
        for index in 0..<free.count { unused.insert(free[index]) }
        precondition(unused.count == free.count, "a number was given back twice")
        return (0..<UInt32(pool.count)).filter { !unused.contains($0) }
    }
}
