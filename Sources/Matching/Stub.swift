import Bytes
import Change
import Policy
extension PredicateIndex {
    public enum Judging: Sendable { case new, old }
    public init(maximumRelations: Int, judging: Judging) { self.init(maximumRelations: maximumRelations) }
    public func asker(of node: MatchedNode) -> UInt32? { nil }
    public mutating func verdict(of predicate: Predicate, onOldImageOf change: borrowing Change) throws(ByteError) -> Verdict { .no }
    public mutating func texts(of slots: [Int], in change: borrowing Change, image: Judging) throws(ByteError) -> [String?] { [] }
}
