import Change
import Policy

public final class PolicyBinding: Sendable {
    let rowPolicy = RowPolicy(.undecided)
    let judged: JudgedPolicy
    let warning: String? = nil
    let followed: [UInt32: CatalogTable] = [:]
    init(_ judged: JudgedPolicy) { self.judged = judged }
}
extension TableBinding { var policy: PolicyBinding? { nil } }
extension CatalogSnapshot { func followed(_ oid: UInt32) -> CatalogTable? { nil } }
