/// Questions of a pipeline to the catalog, one at a time, and the newest catalog version that the loop has received.
struct CatalogQuestion {
    private var last: UInt64 = 0
    private(set) var isUnderWay = false
    /// Version of the newest catalog snapshot that the loop has received.
    private(set) var newestVersion: UInt64 = 0

    /// Begins a question. Returns its number.
    mutating func ask() -> UInt64 {
        last += 1
        isUnderWay = true
        return last
    }

    /// Accepts an answer. Returns false if a newer question was asked: the answer then says nothing about the current
    /// entry.
    mutating func takeAnswer(_ ticket: UInt64) -> Bool {
        guard ticket == last else { return false }
        assert(isUnderWay, "each question has one answer")
        isUnderWay = false
        return true
    }

    mutating func hear(_ version: UInt64) { newestVersion = version }
}
