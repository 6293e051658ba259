/// Upper estimate of the work to evaluate a filter on a row. It is charged to the client that owns the filter. The unit
/// is about half a nanosecond.
///
/// The estimate is known before evaluating. Each condition has a fixed cost. A condition that searches within a value
/// costs the product of the lengths of value and pattern. Policies cost nothing, because clients do not choose them.
public struct Effort: Sendable, Hashable {
    static let none = Effort(fixed: 0, searched: [])
    private static let ofCondition = 32

    /// Column whose value is searched, with the cost for each byte of the value.
    struct Searched: Hashable {
        let slot: Int
        var ofByte: Int
    }

    private let fixed: Int
    private let searched: [Searched]

    private init(fixed: Int, searched: [Searched]) {
        precondition(fixed >= 0 && searched.allSatisfy { $0.ofByte > 0 }, "a filter that costs less than nothing")
        self.fixed = fixed
        self.searched = searched
    }

    init(_ tests: [Predicate.Test], _ constants: [Predicate.Constant]) {
        var fixed = 0
        var searched: [Searched] = []
        for test in tests {
            fixed += Self.ofCondition
            switch test.operation {
            case .contains, .isContained, .overlaps, .like, .likeFolded, .likeFoldedASCII, .hasElement:
                let length = max(1, Int(constants[Int(test.firstConstant)].length))
                if let known = searched.firstIndex(where: { $0.slot == test.testedSlot }) {
                    searched[known].ofByte += length
                } else {
                    searched.append(Searched(slot: test.testedSlot, ofByte: length))
                }
            case .isIn where test.comparator.keyForm == nil: fixed += Int(test.constantCount) * Self.ofCondition
            default: break
            }
        }
        self.init(fixed: fixed, searched: searched)
    }

    /// Returns the estimate for this row.
    public func on(_ row: borrowing RowImage) -> Int {
        var effort = fixed
        for part in searched where row.kind(part.slot) == .text {
            let (work, overflow) = row.text(part.slot).byteCount.multipliedReportingOverflow(by: part.ofByte)
            effort = overflow ? .max / 2 : min(.max / 2, effort + work)
        }
        assert(effort >= fixed, "a row that makes a filter cheaper")
        return effort
    }
}
