/// Growing array of plain values for one thread. Elements can be changed in place.
///
/// An `Array` stored in a class checks uniqueness and exclusive access at every change of an element. This type checks
/// only the bounds.
@safe
final class PlainArray<Element: BitwiseCopyable> {
    private var base: UnsafeMutablePointer<Element>
    private var capacity: Int
    private(set) var count = 0

    init(capacity: Int = 64) {
        // SAFETY: freed in `deinit`, replaced only by `grow`.
        unsafe base = .allocate(capacity: capacity)
        self.capacity = capacity
    }

    deinit {
        // SAFETY: this array's own allocation; its elements are plain.
        unsafe base.deallocate()
    }

    var isEmpty: Bool { count == 0 }

    subscript(_ index: Int) -> Element {
        @inline(__always) get {
            precondition(index >= 0 && index < count, "an array's elements lie below its count")
            // SAFETY: `index` is below `count`, up to which all is initialised.
            return unsafe base[index]
        }
        @inline(__always) _modify {
            precondition(index >= 0 && index < count, "an array's elements lie below its count")
            // SAFETY: as above.
            yield unsafe &base[index]
        }
    }

    @inline(__always)
    func append(_ element: Element) {
        if count == capacity { grow() }
        // SAFETY: there is room for one more.
        unsafe (base + count).initialize(to: element)
        count &+= 1
    }

    func popLast() -> Element? {
        guard count > 0 else { return nil }
        count &-= 1
        // SAFETY: the element just behind the new end was initialised.
        return unsafe base[count]
    }

    func removeAll() { count = 0 }

    /// Removes all elements. Frees memory beyond `limit` elements, which only a rare large turn needed.
    func removeAll(keeping limit: Int) {
        count = 0
        guard capacity > limit else { return }
        // SAFETY: the old elements are plain and not needed any more.
        unsafe base.deallocate()
        unsafe base = .allocate(capacity: limit)
        capacity = limit
    }

    @inline(never)
    private func grow() {
        let larger = capacity * 2
        // SAFETY: the new allocation holds all elements; the old one is freed exactly once.
        let moved = UnsafeMutablePointer<Element>.allocate(capacity: larger)
        unsafe moved.update(from: base, count: count)
        unsafe base.deallocate()
        unsafe base = moved
        capacity = larger
    }
}
