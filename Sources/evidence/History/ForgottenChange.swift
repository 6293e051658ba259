import Bytes
import Change

/// Change whose values were erased from the log on request. Only its existence, its key's hash and the day of the
/// erasure are left.
public struct ForgottenChange: Sendable, Hashable {
    public let old: ForgottenMark?
    public let new: ForgottenMark?

    init(_ change: borrowing Change) {
        (old, new) = change.forgottenMarks
    }

    /// Day of the erasure, as days since 1970; nil if the row image had no room for it.
    public var day: UInt16? { (new ?? old)?.day }

    /// Day of the erasure in the form `2026-11-26`; nil if it is unknown.
    public var date: String? { day.map { String(TimeText.write(Int64($0) * 86_400_000_000, digits: 0).prefix(10)) } }

    /// True if the change may concern the row with this key hash; false only if it certainly does not.
    func fits(_ keyHash: UInt64) -> Bool {
        let marks = [old, new].compactMap { $0 }
        return marks.isEmpty || marks.contains { $0.fits(keyHash) }
    }
}
