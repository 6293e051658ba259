/// Questions of a pipeline to the catalog, one at a time, and the newest catalog version that the loop has received.
struct CatalogQuestion {
    private var last: UInt64 = 0
    private(set) var isUnderWay = false
    /// Version of the newest catalog snapshot that the loop has received.
    private(set) var newestVersion: UInt64 = 0

    /// Counts a new question to the catalog, which replaces an open one. Returns its ticket, which the answer must
    /// have.
    mutating func ask() -> UInt64 {
        last += 1
        isUnderWay = true
        return last
    }

    /// Accepts the answer with this ticket. Returns false if a newer question was asked: the answer then says nothing
    /// about the current entry.
    mutating func takeAnswer(_ ticket: UInt64) -> Bool {
        guard ticket == last else { return false }
        assert(isUnderWay, "each question has one answer")
        isUnderWay = false
        return true
    }

    /// Records the version of a catalog snapshot that the loop has received.
    mutating func hear(_ version: UInt64) { newestVersion = version }
}
