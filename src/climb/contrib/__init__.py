"""Parts that use the public extension API: PCMC and the released code's faulty memory."""
