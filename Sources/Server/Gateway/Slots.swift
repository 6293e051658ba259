/// Things with small numbers; a number is used again after its thing has gone.
struct Slots<Element> {
    private var elements: [Element?] = []
    private var free: [UInt32] = []
    private(set) var count = 0

    /// The number that the next one gets.
    var nextIndex: UInt32 { free.last ?? UInt32(elements.count) }

    mutating func add(_ element: Element) -> UInt32 {
        count += 1
        if let index = free.popLast() {
            elements[Int(index)] = element
            return index
        }
        elements.append(element)
        return UInt32(elements.count - 1)
    }

    @discardableResult
    mutating func remove(_ index: UInt32) -> Element? {
        guard Int(index) < elements.count, let element = elements[Int(index)] else { return nil }
        elements[Int(index)] = nil
        free.append(index)
        count -= 1
        return element
    }

    func contains(_ index: UInt32) -> Bool {
        guard Int(index) < elements.count, case .some = elements[Int(index)] else { return false }
        return true
    }

    /// All numbers that are or were in use.
    var indices: Range<UInt32> { 0..<UInt32(elements.count) }

    subscript(index: UInt32) -> Element? {
        get { Int(index) < elements.count ? elements[Int(index)] : nil }
        _modify { yield &elements[Int(index)] }
    }
}
