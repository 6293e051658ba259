/// Collection that assigns a small index to each element. After an element is removed, a later one reuses its index.
public struct Slots<Element> {
    @usableFromInline var elements: [Element?] = []
    @usableFromInline var free: [UInt32] = []
    @usableFromInline var used = 0

    @inlinable public var count: Int { used }

    @inlinable public init() {}

    /// Index that the next added element gets.
    @inlinable public var nextIndex: UInt32 { free.last ?? UInt32(elements.count) }

    @inlinable
    public mutating func add(_ element: Element) -> UInt32 {
        used += 1
        if let index = free.popLast() {
            elements[Int(index)] = element
            return index
        }
        elements.append(element)
        return UInt32(elements.count - 1)
    }

    @discardableResult @inlinable
    public mutating func remove(_ index: UInt32) -> Element? {
        guard Int(index) < elements.count, let element = elements[Int(index)] else { return nil }
        elements[Int(index)] = nil
        free.append(index)
        used -= 1
        return element
    }

    @inlinable
    public func contains(_ index: UInt32) -> Bool {
        guard Int(index) < elements.count, case .some = elements[Int(index)] else { return false }
        return true
    }

    /// Range of all indices that are or were in use.
    @inlinable public var indices: Range<UInt32> { 0..<UInt32(elements.count) }

    @inlinable
    public subscript(index: UInt32) -> Element? {
        get { Int(index) < elements.count ? elements[Int(index)] : nil }
        _modify { yield &elements[Int(index)] }
    }
}
