/// Question of a pipeline to the catalog, of which one is under way at a time, and the version that the loop heard of.
struct CatalogQuestion {
    private var last: UInt64 = 0
    private(set) var isUnderWay = false
    /// Version of the catalog snapshot that the loop last heard of.
    private(set) var heardOf: UInt64 = 0

    /// Asks. Returns the number of the question.
    mutating func ask() -> UInt64 {
        last += 1
        isUnderWay = true
        return last
    }

    /// Takes an answer. Returns false if a later question was asked: the answer says nothing about the current entry.
    mutating func takeAnswer(_ ticket: UInt64) -> Bool {
        guard ticket == last else { return false }
        assert(isUnderWay, "each question has one answer")
        isUnderWay = false
        return true
    }

    mutating func hear(_ version: UInt64) { heardOf = version }
}
